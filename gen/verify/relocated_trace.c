/* relocated_trace.c: the trace of a program in another frame.
 *
 * A program runs in as many frames as there are microbatches. All checks of op_trace.c depend only
 * on the relative addresses of its operands. Take the blocks of operands that count from one base:
 * if every two blocks are disjoint in both of two frames, or are at the same distance in both, then
 * operands overlap in one frame as in the other. So a program is traced in the first such frame,
 * and its trace is cached and relocated to the others. The memory of persistent tensors and of the
 * gradients of a microbatch is the same in every frame. */
#include "gen/verify/relocated_trace.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/verify/op_trace.h"
#include "runtime/plan/plan.h"

enum { CACHED_TRACES_MAX = 16 }; /* of one program */

enum { BLOCKS_MAX = 2 * PEN_BASES };

/* Finds the bytes, counted from each base, that the program's operands span. Returns false when an
 * end overflows. */
static bool find_blocks(const struct pen_rank_context *b, const struct pen_program *program,
                        struct pen_cached_traces *cached) {
  struct pen_operand_block block[BLOCKS_MAX];
  for (int n = 0; n < BLOCKS_MAX; n++)
    block[n] = (struct pen_operand_block){UINT64_MAX, 0, (uint8_t)(n / 2), n % 2};
  for (uint32_t index = program->first_op; index < program->first_op + program->op_count; index++) {
    const struct pen_op *op = &b->tables->ops[index];
    for (int k = 0; k <= PEN_OPERANDS_MAX; k++) {
      uint32_t tensor = k < PEN_OPERANDS_MAX ? op->operand[k] : op->workspace;
      if (tensor == PEN_NONE) continue;
      const struct pen_tensor *t = &b->tables->tensors[tensor];
      cached->partial |= t->base == PEN_BASE_PARTIAL;
      cached->exchange |= t->base == PEN_BASE_EXCHANGE;
      struct pen_operand_block *own = &block[2 * t->base + b->received[tensor]];
      uint64_t past;
      if (__builtin_add_overflow(t->offset, pen_extent_bytes(b, tensor), &past)) return false;
      if (t->offset < own->first) own->first = t->offset;
      if (past > own->past) own->past = past;
    }
  }
  size_t count = 0;
  for (int n = 0; n < BLOCKS_MAX; n++)
    if (block[n].first < block[n].past && block[n].base != PEN_BASE_PERSISTENT &&
        block[n].base != PEN_BASE_LOSS && block[n].base != PEN_BASE_RESULT &&
        block[n].base != PEN_BASE_PARTIAL && block[n].base != PEN_BASE_CACHE &&
        block[n].base != PEN_BASE_EXCHANGE)
      block[count++] = block[n];
  cached->block = pen_new(count + 1, sizeof block[0]);
  cached->block_count = count;
  memcpy(cached->block, block, count * sizeof block[0]);
  return true;
}

/* The blocks of a program in one frame. */
struct placed_blocks {
  struct {
    uint64_t first, past;
  } at[BLOCKS_MAX];
  size_t count;
};

/* Finds the blocks in a frame. Returns false unless all are in the right part of the arena. */
static bool place_blocks(const struct pen_rank_context *b, const struct pen_frame *frame,
                         const struct pen_cached_traces *cached, struct placed_blocks *placed) {
  placed->count = cached->block_count;
  for (size_t n = 0; n < cached->block_count; n++) {
    const struct pen_operand_block *own = &cached->block[n];
    uint64_t first, past;
    if (__builtin_add_overflow(frame->base[own->base], own->first, &first) ||
        __builtin_add_overflow(frame->base[own->base], own->past, &past))
      return false;
    bool in_receive_region = own->received || first < b->memory->receive_bytes;
    if (first < (in_receive_region ? 0 : b->memory->persistent_end)) return false;
    if (past >
        (in_receive_region ? b->memory->receive_bytes : pen_activations_end(b->profile, b->memory)))
      return false;
    placed->at[n].first = first;
    placed->at[n].past = past;
  }
  return true;
}

static bool are_disjoint(const struct placed_blocks *placed, size_t a, size_t b) {
  return placed->at[a].first >= placed->at[b].past || placed->at[b].first >= placed->at[a].past;
}

/* Do the blocks of a program overlap in one frame as in another? */
static bool overlap_alike(const struct placed_blocks *x, const struct placed_blocks *y) {
  for (size_t a = 1; a < x->count; a++)
    for (size_t b = 0; b < a; b++) {
      bool same =
          x->at[a].first - x->at[b].first == y->at[a].first - y->at[b].first; /* modulo 2^64 */
      if (!same && !(are_disjoint(x, a, b) && are_disjoint(y, a, b))) return false;
    }
  return true;
}

/* Appends copies of some extents, relocated to another frame. Returns the index of the first. */
static uint32_t relocate_extents(struct pen_tracer *t, const struct pen_frame *from,
                                 const struct pen_frame *to, uint32_t first, uint32_t count) {
  uint32_t first_copy = (uint32_t)t->extent_count;
  PEN_RESERVE(t->extent, t->extent_count + count);
  for (uint32_t index = first; index < first + count; index++) {
    struct pen_extent extent = t->extent[index];
    uint64_t distance = to->base[extent.base] - from->base[extent.base]; /* modulo 2^64 */
    extent.first += distance;
    extent.past += distance;
    t->extent[t->extent_count++] = extent;
  }
  return first_copy;
}

struct pen_cached_trace {
  const struct pen_frame *frame;
  struct placed_blocks placed; /* in that frame */
  struct pen_program_trace trace;
  struct pen_cached_trace *next; /* of the same program */
};

/* The trace of the program in a frame where its blocks overlap in the same way, or null. */
static const struct pen_cached_trace *find_cached_trace(const struct pen_cached_traces *cached,
                                                        const struct placed_blocks *placed) {
  for (const struct pen_cached_trace *found = cached->first; found; found = found->next)
    if (overlap_alike(placed, &found->placed)) return found;
  return NULL;
}

static void cache_trace(struct pen_cached_traces *cached, const struct pen_frame *frame,
                        const struct placed_blocks *placed, const struct pen_program_trace *trace) {
  if (cached->count == CACHED_TRACES_MAX) return;
  struct pen_cached_trace *entry = pen_new(1, sizeof *entry);
  *entry = (struct pen_cached_trace){frame, *placed, *trace, cached->first};
  cached->first = entry;
  cached->count++;
}

bool pen_trace_action(struct pen_tracer *tracer, uint32_t index, struct pen_program_trace *trace) {
  const struct pen_rank_program *tables = tracer->context->tables;
  const struct pen_action *action = &tables->actions[index];
  const struct pen_frame *frame = &tables->frames[action->frame];
  struct pen_cached_traces *cached = &tracer->cached[action->program];
  struct placed_blocks placed;
  if (!cached->known) {
    cached->known = true;
    if (!find_blocks(tracer->context, &tables->programs[action->program], cached))
      cached->count = CACHED_TRACES_MAX;
  }
  if (cached->partial && frame->base[PEN_BASE_PARTIAL] != tracer->context->memory->partial_offset)
    return pen_problem_note(tracer->context->checked->problem, tracer->context->rank, index,
                            "the gradients of its microbatch are at %llu, not at %llu",
                            (unsigned long long)frame->base[PEN_BASE_PARTIAL],
                            (unsigned long long)tracer->context->memory->partial_offset);
  if (cached->exchange &&
      frame->base[PEN_BASE_EXCHANGE] != tracer->context->memory->exchange_offset)
    return pen_problem_note(tracer->context->checked->problem, tracer->context->rank, index,
                            "its slots are at %llu, not at %llu",
                            (unsigned long long)frame->base[PEN_BASE_EXCHANGE],
                            (unsigned long long)tracer->context->memory->exchange_offset);
  if (cached->count == CACHED_TRACES_MAX && !cached->first)
    return pen_trace_program(tracer, index, trace);
  bool fits = place_blocks(tracer->context, frame, cached, &placed);
  const struct pen_cached_trace *found = fits ? find_cached_trace(cached, &placed) : NULL;
  if (!found) {
    if (!pen_trace_program(tracer, index, trace)) return false;
    if (fits) cache_trace(cached, frame, &placed, trace);
    return true;
  }
  *trace = found->trace;
  trace->read_first =
      relocate_extents(tracer, found->frame, frame, trace->read_first, trace->read_count);
  trace->left_first =
      relocate_extents(tracer, found->frame, frame, trace->left_first, trace->left_count);
  if (trace->loss_offset != UINT64_MAX)
    trace->loss_offset += frame->base[PEN_BASE_LOSS] - found->frame->base[PEN_BASE_LOSS];
  return true;
}
