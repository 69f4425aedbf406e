/* lives.c: which bytes of an arena are in use at which row (see lives.h).
 *
 * The tables of a plan say it all: a row's program names tensors, a tensor its base and its place
 * there, the row's frame where the base lies. A block is what one base holds for one stage and
 * microbatch; it is in use from the first row that touches it to the last. Two bases are one block
 * where neighbours on the same rank hand over in place: the input of stage s is the output of s-1,
 * and likewise for gradients. What a backward that runs F again makes anew is its own. */
#include "gen/views/live_ranges.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct search {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program;
  uint32_t rank;
  uint64_t (*extent)[PEN_BASES]; /* [program]: bytes of each base that it touches */
  uint32_t *local;               /* [stage]: place among the rank's stages */
  uint32_t *known;               /* [local stage][microbatch][base]: index of its life + 1 */
  size_t capacity;
  struct pen_live_buffers found;
};

const char *pen_base_text(int base) {
  static const char *const text[] = {
#define PEN_BASE(name, text, meaning) text,
#include "runtime/plan/bases.def"
  };
  return text[base];
}

/* The bytes of every base that each program touches: the end of the last tensor there. */
static void find_extents(struct search *search) {
  const struct pen_rank_program *program = search->program;
  search->extent = pen_new(program->program_count, sizeof *search->extent);
  for (uint32_t p = 0; p < program->program_count; p++)
    for (uint32_t op = program->programs[p].first_op;
         op < program->programs[p].first_op + program->programs[p].op_count; op++)
      for (size_t k = 0; k <= PEN_OPERANDS_MAX; k++) {
        uint32_t index =
            k < PEN_OPERANDS_MAX ? program->ops[op].operand[k] : program->ops[op].workspace;
        if (index == PEN_NONE) continue;
        const struct pen_tensor *tensor = &program->tensors[index];
        uint64_t past = tensor->offset + tensor->bytes, *extent = &search->extent[p][tensor->base];
        if (past > *extent) *extent = past;
      }
}

static bool on_this_rank(const struct search *search, uint32_t stage) {
  return stage < search->plan->stage_count && search->profile->stages[stage].rank == search->rank;
}

static uint32_t *known_at(const struct search *search, uint32_t stage, uint32_t microbatch,
                          int base) {
  return &search->known[((size_t)search->local[stage] * search->profile->microbatch_count +
                         microbatch) *
                            PEN_BASES +
                        (size_t)base];
}

/* Notes that a row uses a block. */
static void touch(struct search *search, uint32_t row, uint32_t stage, int base, uint64_t offset,
                  uint64_t bytes, bool anew) {
  uint32_t microbatch =
      base == PEN_BASE_UNSHARDED
          ? 0
          : search->program->actions[row].microbatch; /* all read the same weights */
  if (base == PEN_BASE_INPUT && stage > 0 && on_this_rank(search, stage - 1))
    stage--, base = PEN_BASE_OUTPUT;
  if (base == PEN_BASE_OUTPUT_GRADIENT && on_this_rank(search, stage + 1))
    stage++, base = PEN_BASE_INPUT_GRADIENT;
  uint32_t *known = known_at(search, stage, microbatch, base);
  struct pen_live_buffers *found = &search->found;
  if (*known == 0 || anew || found->life[*known - 1].offset != offset) {
    found->life = pen_grow(found->life, &search->capacity, found->count + 1, sizeof *found->life);
    found->life[found->count] = (struct pen_buffer_life){.base = (uint8_t)base,
                                                         .stage = (uint16_t)stage,
                                                         .microbatch = microbatch,
                                                         .first = row,
                                                         .offset = offset};
    *known = (uint32_t)++found->count;
  }
  struct pen_buffer_life *life = &found->life[*known - 1];
  life->last = row;
  if (bytes > life->bytes) life->bytes = bytes;
}

static void touch_compute(struct search *search, uint32_t row) {
  const struct pen_action *action = &search->program->actions[row];
  const struct pen_frame *frame = &search->program->frames[action->frame];
  for (int base = PEN_BASE_SCRATCH; base < PEN_BASES; base++) {
    uint64_t bytes = search->extent[action->program][base];
    bool anew = base == PEN_BASE_SCRATCH; /* each row's is a block of its own */
    if (bytes && base != PEN_BASE_LOSS)
      touch(search, row, action->stage, base, frame->base[base], bytes, anew);
  }
}

/* A message is read from its source when it is sent, and has its home from RECV on. */
static void touch_message(struct search *search, uint32_t row) {
  const struct pen_action *action = &search->program->actions[row];
  const struct pen_message *message =
      !pen_has_message(action) ? NULL : &search->profile->messages[action->message];
  if (!message) return;
  switch (action->kind) {
    case PEN_SEND_F:
      touch(search, row, action->stage, PEN_BASE_OUTPUT, message->source_offset, message->bytes,
            false);
      break;
    case PEN_SEND_B:
      touch(search, row, action->stage, PEN_BASE_INPUT_GRADIENT, message->source_offset,
            message->bytes, false);
      break;
    case PEN_RECV_F:
      touch(search, row, action->stage, PEN_BASE_INPUT, message->target_offset, message->bytes,
            false);
      break;
    case PEN_RECV_B:
      touch(search, row, action->stage, PEN_BASE_OUTPUT_GRADIENT, message->target_offset,
            message->bytes, false);
      break;
    default: break; /* a wait; its compute row is next */
  }
}

/* Bytes in use at each row, by adding up where lives begin and end. */
static uint64_t *sum_up(const struct search *search) {
  uint32_t rows = search->program->action_count;
  uint64_t *in_use = pen_new(rows + 1u, sizeof *in_use);
  for (size_t i = 0; i < search->found.count; i++) {
    in_use[search->found.life[i].first] += search->found.life[i].bytes;
    in_use[search->found.life[i].last + 1u] -=
        search->found.life[i].bytes; /* wraps, and back in the sum */
  }
  for (uint32_t row = 1; row < rows; row++) in_use[row] += in_use[row - 1];
  return in_use;
}

struct pen_live_buffers pen_live_buffers_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank) {
  struct search search = {
      .plan = plan, .profile = profile, .program = &profile->ranks[rank], .rank = rank};
  uint32_t stages = 0;
  search.local = pen_new(plan->stage_count, sizeof *search.local);
  for (uint32_t stage = 0; stage < plan->stage_count; stage++)
    if (on_this_rank(&search, stage)) search.local[stage] = stages++;
  search.known =
      pen_new((size_t)stages * profile->microbatch_count * PEN_BASES, sizeof *search.known);
  find_extents(&search);
  for (uint32_t row = 0; row < search.program->action_count; row++) {
    int kind = search.program->actions[row].kind;
    if (kind <= PEN_W)
      touch_compute(&search, row);
    else if (kind < PEN_NORM)
      touch_message(&search, row);
    else if (kind == PEN_UNSHARD)
      *known_at(&search, search.program->actions[row].stage, 0, PEN_BASE_UNSHARDED) =
          0; /* given up in between */
  }
  search.found.in_use = sum_up(&search);
  return search.found;
}

struct pen_action_times pen_action_times_of(const struct pen_rank_program *program,
                                            const struct pen_compute *action, uint32_t count,
                                            const double *start, const double *end) {
  struct pen_action_times times = {pen_new(program->action_count, sizeof(double)),
                                   pen_new(program->action_count, sizeof(double))};
  double now = 0;
  uint32_t next = 0;
  for (uint32_t row = 0; row < program->action_count; row++) {
    const struct pen_action *a = &program->actions[row];
    bool known = next < count && a->kind == action[next].kind && a->stage == action[next].stage &&
                 a->microbatch == action[next].microbatch;
    times.start[row] = known ? start[next] : now;
    if (known) now = end[next++];
    times.end[row] = now;
  }
  return times;
}
