/* live_ranges.c: which bytes of an arena are in use at which action (see live_ranges.h).
 *
 * The tables of a plan say it all: the program of an action names tensors, a tensor its base and
 * its offset, the frame of the action the address of the base. A buffer is what one base holds for
 * one stage and microbatch; it is live from the first action that uses it to the last. Two bases
 * are one buffer where neighbour stages on the same rank pass a value in place: the input of stage
 * s is the output of s-1, and likewise for gradients. What a recomputing backward makes is its own
 * buffer. */
#include "gen/views/live_ranges.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

#include <stdlib.h>
#include <string.h>

struct range_builder {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *program;
  uint32_t rank;
  uint64_t (*extent)[PEN_BASES]; /* [program]: bytes of each base that it uses */
  uint32_t *local;               /* [stage]: index among the stages of the rank */
  uint32_t *known;               /* [local stage][microbatch][base]: index of its range + 1 */
  struct pen_live_buffers found;
};

const char *pen_base_text(int base) {
  static const char *const text[] = {
#define PEN_BASE(name, text, meaning) text,
#include "runtime/plan/bases.def"
  };
  return text[base];
}

/* The bytes of every base that each program uses: to the end of the last tensor. */
static void find_extents(struct range_builder *builder) {
  const struct pen_rank_program *program = builder->program;
  builder->extent = pen_new(program->program_count, sizeof *builder->extent);
  for (uint32_t p = 0; p < program->program_count; p++)
    for (uint32_t op = program->programs[p].first_op;
         op < program->programs[p].first_op + program->programs[p].op_count; op++)
      for (size_t k = 0; k <= PEN_OPERANDS_MAX; k++) {
        uint32_t index =
            k < PEN_OPERANDS_MAX ? program->ops[op].operand[k] : program->ops[op].workspace;
        if (index == PEN_NONE) continue;
        const struct pen_tensor *tensor = &program->tensors[index];
        uint64_t past = tensor->offset + tensor->bytes, *extent = &builder->extent[p][tensor->base];
        if (past > *extent) *extent = past;
      }
}

static bool on_this_rank(const struct range_builder *builder, uint32_t stage) {
  return stage < builder->plan->stage_count &&
         builder->profile->stages[stage].rank == builder->rank;
}

static uint32_t *known_at(const struct range_builder *builder, uint32_t stage, uint32_t microbatch,
                          int base) {
  return &builder->known[((size_t)builder->local[stage] * builder->profile->microbatch_count +
                          microbatch) *
                             PEN_BASES +
                         (size_t)base];
}

/* An action uses a buffer. */
static void use_buffer(struct range_builder *builder, uint32_t index, uint32_t stage, int base,
                       uint64_t offset, uint64_t bytes, bool is_new) {
  uint32_t microbatch =
      base == PEN_BASE_UNSHARDED
          ? 0
          : builder->program->actions[index].microbatch; /* one for all microbatches */
  if (base == PEN_BASE_INPUT && stage > 0 && on_this_rank(builder, stage - 1))
    stage--, base = PEN_BASE_OUTPUT;
  if (base == PEN_BASE_OUTPUT_GRADIENT && on_this_rank(builder, stage + 1))
    stage++, base = PEN_BASE_INPUT_GRADIENT;
  uint32_t *known = known_at(builder, stage, microbatch, base);
  struct pen_live_buffers *found = &builder->found;
  if (*known == 0 || is_new || found->range[*known - 1].offset != offset) {
    PEN_RESERVE(found->range, found->count + 1);
    found->range[found->count] = (struct pen_live_buffer){.base = (uint8_t)base,
                                                          .stage = (uint16_t)stage,
                                                          .microbatch = microbatch,
                                                          .first = index,
                                                          .offset = offset};
    *known = (uint32_t)++found->count;
  }
  struct pen_live_buffer *range = &found->range[*known - 1];
  range->last = index;
  if (bytes > range->bytes) range->bytes = bytes;
}

/* The slots of tensor ranks, the cache and a microbatch's gradients have a fixed place. */
static bool persists(const struct range_builder *builder, uint64_t offset) {
  const struct pen_rank_memory *memory = &builder->plan->memory[builder->rank];
  return offset >= memory->receive_bytes && offset < memory->persistent_end;
}

static void use_compute_buffers(struct range_builder *builder, uint32_t index) {
  const struct pen_action *action = &builder->program->actions[index];
  const struct pen_frame *frame = &builder->program->frames[action->frame];
  for (int base = PEN_BASE_SCRATCH; base < PEN_BASES; base++) {
    uint64_t bytes = builder->extent[action->program][base];
    bool is_new = base == PEN_BASE_SCRATCH; /* each action has its own */
    if (bytes && !persists(builder, frame->base[base]))
      use_buffer(builder, index, action->stage, base, frame->base[base], bytes, is_new);
  }
}

/* A SEND reads the source; the target is in use from RECV on. */
static void use_message_buffer(struct range_builder *builder, uint32_t index) {
  const struct pen_action *action = &builder->program->actions[index];
  const struct pen_message *message =
      !pen_has_message(action) ? NULL : &builder->profile->messages[action->message];
  const int base = action->kind == PEN_SEND_F   ? PEN_BASE_OUTPUT
                   : action->kind == PEN_SEND_B ? PEN_BASE_INPUT_GRADIENT
                   : action->kind == PEN_RECV_F ? PEN_BASE_INPUT
                   : action->kind == PEN_RECV_B ? PEN_BASE_OUTPUT_GRADIENT
                                                : PEN_BASES; /* after a WAIT, its compute action */
  if (message && base < PEN_BASES)
    use_buffer(builder, index, action->stage, base,
               pen_kind_sends(action->kind) ? message->source_offset : message->target_offset,
               message->bytes, false);
}

/* Bytes in use at each action: the sum of the ranges that have begun and not ended. */
static uint64_t *sum_in_use(const struct range_builder *builder) {
  uint32_t count = builder->program->action_count;
  uint64_t *in_use = pen_new(count + 1u, sizeof *in_use);
  for (size_t i = 0; i < builder->found.count; i++) {
    in_use[builder->found.range[i].first] += builder->found.range[i].bytes;
    in_use[builder->found.range[i].last + 1u] -= builder->found.range[i].bytes; /* modulo 2^64 */
  }
  for (uint32_t index = 1; index < count; index++) in_use[index] += in_use[index - 1];
  return in_use;
}

struct pen_live_buffers pen_live_buffers_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank) {
  struct range_builder builder = {
      .plan = plan, .profile = profile, .program = &profile->ranks[rank], .rank = rank};
  uint32_t stages = 0;
  builder.local = pen_new(plan->stage_count, sizeof *builder.local);
  for (uint32_t stage = 0; stage < plan->stage_count; stage++)
    if (on_this_rank(&builder, stage)) builder.local[stage] = stages++;
  builder.known =
      pen_new((size_t)stages * profile->microbatch_count * PEN_BASES, sizeof *builder.known);
  find_extents(&builder);
  for (uint32_t index = 0; index < builder.program->action_count; index++) {
    int kind = builder.program->actions[index].kind;
    if (kind <= PEN_W)
      use_compute_buffers(&builder, index);
    else if (kind < PEN_NORM)
      use_message_buffer(&builder, index);
    else if (kind == PEN_UNSHARD)
      *known_at(&builder, builder.program->actions[index].stage, 0, PEN_BASE_UNSHARDED) =
          0; /* a new buffer after RESHARD */
  }
  builder.found.in_use = sum_in_use(&builder);
  return builder.found;
}

struct pen_action_times pen_action_times_of(const struct pen_rank_program *program,
                                            const struct pen_compute *action, uint32_t count,
                                            const double *start, const double *end) {
  struct pen_action_times times = {pen_new(program->action_count, sizeof(double)),
                                   pen_new(program->action_count, sizeof(double))};
  double now = 0;
  uint32_t next = 0;
  for (uint32_t index = 0; index < program->action_count; index++) {
    const struct pen_action *a = &program->actions[index];
    bool known = next < count && a->kind == action[next].kind && a->stage == action[next].stage &&
                 a->microbatch == action[next].microbatch;
    times.start[index] = known ? start[next] : now;
    if (known) now = end[next++];
    times.end[index] = now;
  }
  return times;
}
