/* memory_checkpoint.c: copies of the ranks' states in memory (see memory_checkpoint.h).
 *
 *     control, a page; of each rank: | header, a page | copy 0 | copy 1 | ...
 *
 * A copy is the parts of the arena that persist, one after the other. */
#define _GNU_SOURCE
#include "runtime/storage/memory_checkpoint.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "runtime/plan/shard.h"
#include "runtime/storage/checkpoint_tensors.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct copies_header {
  _Atomic uint64_t step[PEN_MEMORY_COPIES_MAX]; /* 0: the copy is incomplete */
  struct pen_state_position position[PEN_MEMORY_COPIES_MAX];
};

/* ---- what persists ---- */

typedef void visit_part(void *context, const struct pen_state_part *part);

static void visit_weight(const struct pen_plan *plan, uint32_t index, uint32_t data_rank,
                         visit_part *visit, void *context) {
  const struct pen_weight *weight = &plan->weights[index];
  struct pen_state_part part = {.weight = index};
  for (part.kind = 0; part.kind < PEN_CHECKPOINT_TENSORS; part.kind++) {
    const enum pen_checkpoint_tensor tensor = (enum pen_checkpoint_tensor)part.kind;
    if (pen_checkpoint_tensor_exists(weight, tensor)) {
      part.offset = pen_checkpoint_arena_offset(weight, tensor);
      part.bytes = pen_checkpoint_tensor_kept(plan, index, tensor, data_rank).count * sizeof(float);
      visit(context, &part);
    }
  }
  if (weight->bf16_offset != UINT64_MAX) {
    part.kind = PEN_STATE_BF16;
    part.offset = weight->bf16_offset;
    part.bytes = pen_kept_of(plan, index, data_rank, weight->bf16_sharded).count * sizeof(uint16_t);
    visit(context, &part);
  }
}

/* The parts of a rank's arena that the next step reads: its weights, and its copy of a tied matrix
 * of another rank. */
void pen_memory_state_visit(const struct pen_plan *plan, uint32_t global, visit_part *visit,
                            void *context) {
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (pen_has_weight(plan, &plan->weights[i], global)) {
      visit_weight(plan, i, pen_group_member(plan, global, PEN_DATA), visit, context);
    }
  }
  for (uint32_t i = 0; i < pen_local_tie_count(plan); i++) {
    const struct pen_tie *tie = &pen_own_ties(plan, global)[i];
    const struct pen_weight *weight = &plan->weights[tie->weight];
    if (tie->rank == pen_table_rank(plan, global) && weight->rank != tie->rank) {
      const struct pen_state_part part = {.weight = tie->weight,
                                          .kind = PEN_STATE_TIE,
                                          .offset = tie->value_offset,
                                          .bytes = weight->count * pen_dtype_bytes(tie->dtype)};
      visit(context, &part);
    }
  }
}

static void add_bytes(void *context, const struct pen_state_part *part) {
  *(uint64_t *)context += part->bytes;
}

size_t pen_memory_copy_bytes(const struct pen_plan *plan, uint32_t global) {
  uint64_t bytes = 0;
  pen_memory_state_visit(plan, global, add_bytes, &bytes);
  return (bytes + PEN_PAGE_BYTES - 1) / PEN_PAGE_BYTES * PEN_PAGE_BYTES;
}

size_t pen_memory_checkpoint_bytes(const struct pen_plan *plan, uint32_t rank) {
  return pen_memory_copy_bytes(plan, pen_group_process(plan, 0, PEN_PIPELINE, rank));
}

/* ---- the memory ---- */

static unsigned char *memory_of(const struct pen_memory_checkpoints *checkpoints, uint32_t global) {
  pen_assert(pen_rank_set_has(&checkpoints->ranks, global));
  return checkpoints->memory + PEN_PAGE_BYTES +
         pen_rank_set_index(&checkpoints->ranks, global) * checkpoints->rank_bytes;
}

static struct copies_header *header_of(const struct pen_memory_checkpoints *checkpoints,
                                       uint32_t global) {
  return (struct copies_header *)memory_of(checkpoints, global);
}

static unsigned char *copy_of(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                              uint32_t copy) {
  const size_t copy_bytes = (checkpoints->rank_bytes - PEN_PAGE_BYTES) / checkpoints->copies;
  return memory_of(checkpoints, global) + PEN_PAGE_BYTES + copy * copy_bytes;
}

void pen_memory_checkpoints_open(struct pen_memory_checkpoints *checkpoints,
                                 const struct pen_plan *plan, const struct pen_rank_set *ranks,
                                 uint32_t copies) {
  size_t most = 0;
  for (uint32_t r = ranks->first; r < ranks->process_count; r = pen_rank_set_next(ranks, r + 1)) {
    const size_t bytes = pen_memory_copy_bytes(plan, r);
    most = bytes > most ? bytes : most;
  }
  *checkpoints = (struct pen_memory_checkpoints){
      .plan = plan,
      .ranks = *ranks,
      .copies = copies,
      .rank_bytes = PEN_PAGE_BYTES + copies * most,
  };
  if (ranks->count == 0) {
    return; /* of a spare */
  }
  checkpoints->bytes = PEN_PAGE_BYTES + ranks->count * checkpoints->rank_bytes;
  checkpoints->memory = mmap(NULL, checkpoints->bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pen_check(checkpoints->memory != MAP_FAILED,
            "cannot reserve %zu bytes for copies of the ranks' states (--recover-every)",
            checkpoints->bytes);
  checkpoints->control = (struct pen_memory_checkpoint_control *)checkpoints->memory;
}

void pen_memory_checkpoints_close(struct pen_memory_checkpoints *checkpoints) {
  if (checkpoints->memory != NULL) {
    munmap(checkpoints->memory, checkpoints->bytes);
    checkpoints->memory = NULL;
  }
}

void pen_memory_checkpoint_touch(const struct pen_memory_checkpoints *checkpoints,
                                 uint32_t global) {
  if (madvise(memory_of(checkpoints, global), checkpoints->rank_bytes, MADV_POPULATE_WRITE) != 0) {
    return; /* before Linux 5.14: pages are allocated by the first copies */
  }
}

/* ---- copies ---- */

struct state_copy {
  const struct pen_arena_view *view; /* from which is copied; */
  const unsigned char *from;         /* or this arena */
  const struct pen_loading *to;      /* or to which */
  unsigned char *copy;               /* the next byte */
};

static void copy_from_host(void *context, const struct pen_state_part *state) {
  struct state_copy *copying = context;
  memcpy(copying->copy, copying->from + state->offset, state->bytes);
  copying->copy += state->bytes;
}

static void copy_from_view(void *context, const struct pen_state_part *state) {
  struct state_copy *copying = context;
  uint64_t offset = state->offset, bytes = state->bytes;
  while (bytes > 0) {
    const size_t part = bytes < PEN_LOOK_BYTES ? (size_t)bytes : PEN_LOOK_BYTES;
    memcpy(copying->copy, copying->view->look(copying->view->context, offset, part), part);
    copying->copy += part;
    offset += part;
    bytes -= part;
  }
}

static void copy_to_arena(void *context, const struct pen_state_part *state) {
  struct state_copy *copying = context;
  const struct pen_loading *to = copying->to;
  to->device->copy_in(to->arena + state->offset, copying->copy, state->bytes, to->stream);
  copying->copy += state->bytes;
}

/* The copy of that step (0: an incomplete one); `copies`: there is none. */
static uint32_t find_copy(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                          uint64_t step) {
  const struct copies_header *header = header_of(checkpoints, global);
  uint32_t copy = 0;
  while (copy < checkpoints->copies && atomic_load(&header->step[copy]) != step) {
    copy++;
  }
  return copy;
}

unsigned char *pen_memory_copy_begin(const struct pen_memory_checkpoints *checkpoints,
                                     uint32_t global) {
  struct copies_header *header = header_of(checkpoints, global);
  uint32_t oldest = 0;
  for (uint32_t copy = 1; copy < checkpoints->copies; copy++) {
    if (atomic_load(&header->step[copy]) < atomic_load(&header->step[oldest])) {
      oldest = copy;
    }
  }
  atomic_store(&header->step[oldest], 0);
  return copy_of(checkpoints, global, oldest);
}

void pen_memory_copy_end(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                         const unsigned char *copy, uint64_t step,
                         const struct pen_state_position *position) {
  struct copies_header *header = header_of(checkpoints, global);
  for (uint32_t i = 0; i < checkpoints->copies; i++) {
    if (copy_of(checkpoints, global, i) == copy) {
      header->position[i] = *position;
      atomic_store(&header->step[i], step);
    }
  }
}

const unsigned char *pen_memory_copy_of(const struct pen_memory_checkpoints *checkpoints,
                                        uint32_t global, uint64_t step) {
  const uint32_t copy = find_copy(checkpoints, global, step);
  pen_assert(copy < checkpoints->copies);
  return copy_of(checkpoints, global, copy);
}

void pen_memory_checkpoint_wait(const struct pen_memory_checkpoints *checkpoints, uint32_t global) {
  const uint64_t sleep_ns = 10 * 1000000ull;
  struct pen_memory_checkpoint_control *control = checkpoints->control;
  const struct copies_header *header = header_of(checkpoints, global);
  uint64_t newest = 0;
  for (uint32_t copy = 0; copy < checkpoints->copies; copy++) {
    const uint64_t step = atomic_load(&header->step[copy]);
    newest = step > newest ? step : newest;
  }
  for (;;) {
    const uint32_t mirrored = atomic_load(&control->mirrored.count);
    if (atomic_load(&control->waits) == 0 || atomic_load(&control->mirrored_step) >= newest) {
      return;
    }
    pen_futex_counter_wait_for(&control->mirrored, mirrored + 1, 0, sleep_ns);
  }
}

void pen_memory_checkpoint_save(const struct pen_memory_checkpoints *checkpoints, uint32_t global,
                                const unsigned char *arena, const struct pen_arena_view *view,
                                uint64_t step, const struct pen_state_position *position) {
  unsigned char *copy = pen_memory_copy_begin(checkpoints, global);
  struct state_copy copying = {.view = view, .from = arena, .copy = copy};
  pen_memory_state_visit(checkpoints->plan, global, view == NULL ? copy_from_host : copy_from_view,
                         &copying);
  pen_memory_copy_end(checkpoints, global, copy, step, position);
  pen_futex_counter_increment(&checkpoints->control->written);
}

void pen_memory_checkpoint_steps(const struct pen_memory_checkpoints *checkpoints,
                                 uint64_t steps[PEN_MEMORY_COPIES_MAX]) {
  const struct pen_rank_set *ranks = &checkpoints->ranks;
  for (uint32_t copy = 0; copy < PEN_MEMORY_COPIES_MAX; copy++) {
    steps[copy] = checkpoints->memory == NULL || copy >= checkpoints->copies
                      ? 0
                      : atomic_load(&header_of(checkpoints, ranks->first)->step[copy]);
    for (uint32_t r = ranks->first; r < ranks->process_count && steps[copy] != 0;
         r = pen_rank_set_next(ranks, r + 1)) {
      if (find_copy(checkpoints, r, steps[copy]) == checkpoints->copies) {
        steps[copy] = 0;
      }
    }
  }
}

void pen_memory_checkpoints_forget(const struct pen_memory_checkpoints *checkpoints,
                                   uint64_t step) {
  const struct pen_rank_set *ranks = &checkpoints->ranks;
  for (uint32_t r = ranks->first; r < ranks->process_count && checkpoints->memory != NULL;
       r = pen_rank_set_next(ranks, r + 1)) {
    struct copies_header *header = header_of(checkpoints, r);
    for (uint32_t copy = 0; copy < checkpoints->copies; copy++) {
      if (atomic_load(&header->step[copy]) > step) {
        atomic_store(&header->step[copy], 0);
      }
    }
  }
}

struct pen_state_position pen_memory_checkpoint_position(
    const struct pen_memory_checkpoints *checkpoints, uint64_t step) {
  const uint32_t copy = find_copy(checkpoints, checkpoints->ranks.first, step);
  pen_assert(copy < checkpoints->copies);
  return header_of(checkpoints, checkpoints->ranks.first)->position[copy];
}

void pen_memory_checkpoint_load(const struct pen_memory_checkpoints *checkpoints,
                                const struct pen_loading *to, uint64_t step) {
  /* Reads the copy alone. */
  unsigned char *copy =
      (unsigned char *)(uintptr_t)pen_memory_copy_of(checkpoints, to->global, step);
  struct state_copy copying = {.to = to, .copy = copy};
  pen_memory_state_visit(checkpoints->plan, to->global, copy_to_arena, &copying);
}
