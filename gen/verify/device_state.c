/* device_state.c: the device control block of every arena (plan.h): present exactly where the
 * device has memory of its own; each of its parts as large as its contents; and a staged input for
 * every data op of every program. persistent.c checks that the block does not overlap anything
 * else. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

static bool in_order(uint64_t first, uint64_t bytes, uint64_t past) {
  return first <= past && bytes <= past - first;
}

static uint32_t signals_of(const struct pen_rank_program *tables, uint32_t program) {
  uint32_t count = 0, first = tables->programs[program].first_op;
  for (uint32_t op = first; op < first + tables->programs[program].op_count; op++)
    count += tables->ops[op].kind == PEN_OP_SIGNAL_PEERS;
  return count;
}

/* The most flags of any profile, in words: two a message, one a process, one for each replica and
 * collective, and two for each tensor rank. */
static uint64_t most_flags(const struct pen_plan *plan, uint32_t rank) {
  uint64_t most = 0, processes = pen_process_count(plan), data = pen_group_size(plan, PEN_DATA),
           tensor = pen_group_size(plan, PEN_TENSOR);
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_rank_program *tables = &plan->profiles[p].ranks[rank];
    uint64_t collectives = 0, words;
    for (uint32_t i = 0; i < tables->action_count; i++) switch (tables->actions[i].kind) {
        case PEN_F:
        case PEN_B:
        case PEN_I:
        case PEN_W: collectives += signals_of(tables, tables->actions[i].program); break;
        case PEN_UPDATE:
        case PEN_GRAD_READY:
        case PEN_REDUCE_SCATTER:
        case PEN_REDUCE_GROUPS:
        case PEN_GATHER_GROUPS:
        case PEN_ALL_GATHER_GRAD:
        case PEN_ALL_GATHER_WEIGHT:
        case PEN_UNSHARD: collectives++;
      }
    words = 2 * (uint64_t)plan->profiles[p].message_count + processes +
            (data > 1 ? data * collectives : 0) + (tensor > 1 ? 2 * tensor : 0);
    if (words > most) most = words;
  }
  return most;
}

uint64_t pen_largest_shard(struct pen_division d) {
  uint64_t most = 0;
  for (uint32_t shard = 0; shard < d.shards; shard++)
    if (pen_shard_in(d, shard).count > most) most = pen_shard_in(d, shard).count;
  return most;
}

/* The workspace of NORM: an f64 for each block of a tensor rank's shards, of the tensor rank with
 * the most.
 */
static uint64_t norm_workspace_bytes(const struct pen_plan *plan, uint32_t rank) {
  const uint32_t shards = pen_group_size(plan, PEN_SHARD);
  uint64_t most = 0;
  for (uint32_t tensor_rank = 0; tensor_rank < pen_group_size(plan, PEN_TENSOR); tensor_rank++) {
    const uint32_t first = pen_group_process(plan, 0, PEN_PIPELINE, rank),
                   global = pen_group_process(plan, first, PEN_TENSOR, tensor_rank);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < plan->weight_count; i++)
      if (pen_owns_weight(plan, &plan->weights[i], global) && !plan->weights[i].frozen)
        blocks +=
            (pen_largest_shard(pen_division_of(&plan->weights[i], shards)) + PEN_NORM_BLOCK - 1) /
            PEN_NORM_BLOCK;
    if (blocks > most) most = blocks;
  }
  return most * sizeof(double);
}

/* The parts of the block follow each other, and each has room for its contents. */
static bool check_control_parts(const struct pen_plan *plan, uint32_t rank,
                                struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  uint64_t stats_bytes = pen_stats_entries(plan) * sizeof(double);
  const struct {
    const char *name;
    uint64_t first, bytes, past;
  } part[] = {
      {"the optimizer settings of the staged inputs", m->staged_input_offset,
       sizeof(struct pen_adamw), m->staged_input_offset + m->staged_input_bytes},
      {"the staged inputs", m->staged_input_offset, m->staged_input_bytes, m->step_stats_offset},
      {"the step statistics", m->step_stats_offset, pen_group_size(plan, PEN_DATA) * stats_bytes,
       m->settings_offset},
      {"the settings", m->settings_offset, sizeof(struct pen_adamw), m->reduce_offset},
      {"the workspace of NORM", m->reduce_offset, norm_workspace_bytes(plan, rank),
       m->flags_offset},
      {"the flags", m->flags_offset, most_flags(plan, rank) * sizeof(uint32_t),
       m->shard_staging_offset},
      {"the shard staging", m->shard_staging_offset, 0, /* moves.c */
       m->staged_input_offset + m->device_control_bytes},
  };
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    if (part[i].first % PEN_ALIGNMENT_BYTES)
      return pen_problem_note(problem, rank, PEN_NONE,
                              "%s of the device control block at %llu: not a multiple of %d",
                              part[i].name, (unsigned long long)part[i].first, PEN_ALIGNMENT_BYTES);
    if (!in_order(part[i].first, part[i].bytes, part[i].past))
      return pen_problem_note(
          problem, rank, PEN_NONE,
          "%s of the device control block: %llu bytes at %llu, but the next part begins at %llu",
          part[i].name, (unsigned long long)part[i].bytes, (unsigned long long)part[i].first,
          (unsigned long long)part[i].past);
  }
  stats_bytes = pen_aligned(stats_bytes);
  uint64_t pinned = PEN_STEPS_AHEAD * (m->staged_input_bytes + stats_bytes) + PEN_ALIGNMENT_BYTES +
                    PEN_STAGING_BYTES;
  if (m->snapshot_bytes) pinned += PEN_STAGING_BYTES; /* for the thread that writes it */
  if (m->pinned_bytes < pinned || m->staged_input_bytes % PEN_ALIGNMENT_BYTES)
    return pen_problem_note(
        problem, rank, PEN_NONE,
        "%llu bytes of pinned memory, but staged inputs, step statistics and staging take %llu",
        (unsigned long long)m->pinned_bytes, (unsigned long long)pinned);
  return true;
}

static bool same_op(const struct pen_staged_input *input, const struct pen_op *op) {
  return input->kind == op->kind && input->dtype == op->dtype &&
         memcmp(input->dim, op->dim, sizeof op->dim) == 0;
}

/* The most microbatches of a step that uses a staged input. */
static uint32_t most_microbatches(const struct pen_plan *plan,
                                  const struct pen_staged_input *input) {
  uint32_t most = 0;
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_rank_program *tables = &plan->profiles[p].ranks[input->rank];
    for (uint32_t i = 0; i < tables->op_count; i++)
      if (plan->profiles[p].microbatch_count > most && same_op(input, &tables->ops[i]))
        most = plan->profiles[p].microbatch_count;
  }
  return most;
}

/* The staged inputs follow the optimizer settings in rising order, and each holds every microbatch.
 */
static bool check_staged_inputs(const struct pen_plan *plan, uint32_t rank,
                                struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  uint64_t at = m->staged_input_offset + sizeof(struct pen_adamw),
           past = m->staged_input_offset + m->staged_input_bytes;
  for (uint32_t i = 0; i < plan->staged_input_count; i++) {
    const struct pen_staged_input *input = &plan->staged_inputs[i];
    if (input->rank != rank) continue;
    if (input->kind >= PEN_OP_COUNT || !pen_signature_of(input->kind)->is_data)
      return pen_problem_note(problem, rank, PEN_NONE, "staged input %u has no data op", i);
    const struct pen_signature *signature = pen_signature_of(input->kind);
    if (input->operand >= signature->operand_count || input->operand < signature->input_count)
      return pen_problem_note(problem, rank, PEN_NONE, "staged input %u (%s) is not an output", i,
                              signature->kind);
    uint64_t bytes =
                 pen_operand_bytes(&signature->operand[input->operand], input->dtype, input->dim),
             all;
    uint32_t microbatches = most_microbatches(plan, input);
    if (microbatches == 0)
      return pen_problem_note(problem, rank, PEN_NONE, "staged input %u (%s) has no op", i,
                              signature->kind);
    if (input->bytes != bytes || input->microbatch_bytes < bytes ||
        input->microbatch_bytes % PEN_ALIGNMENT_BYTES || input->offset % PEN_ALIGNMENT_BYTES ||
        __builtin_mul_overflow(input->microbatch_bytes, (uint64_t)microbatches, &all) ||
        input->offset < at || !in_order(input->offset, all, past))
      return pen_problem_note(problem, rank, PEN_NONE,
                              "staged input %u (%s) does not hold %u microbatches within its part",
                              i, signature->kind, microbatches);
    at = input->offset + all;
  }
  return true;
}

/* Are staged inputs `index` and following all outputs of an op, in order? */
static bool is_staged_at(const struct pen_plan *plan, uint32_t index, uint32_t rank,
                         const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (int k = signature->input_count; k < signature->operand_count; k++, index++) {
    const struct pen_staged_input *input = &plan->staged_inputs[index];
    if (index >= plan->staged_input_count || input->rank != rank || input->operand != k ||
        !same_op(input, op))
      return false;
  }
  return true;
}

/* Every data op has its staged inputs. */
static bool check_data_ops(const struct pen_plan *plan, const struct pen_profile *profile,
                           uint32_t rank, struct pen_problem *problem) {
  const struct pen_rank_program *tables = &profile->ranks[rank];
  for (uint32_t index = 0; index < tables->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    bool found = !pen_signature_of(op->kind)->is_data;
    for (uint32_t i = 0; i < plan->staged_input_count && !found; i++)
      found = is_staged_at(plan, i, rank, op);
    if (!found)
      return pen_problem_note(problem, rank, PEN_NONE, "%s: op %u (%s) has no staged input",
                              profile->name, index, pen_signature_of(op->kind)->kind);
  }
  return true;
}

/* On the CPU the block has the shard staging alone, if any. */
static bool check_staging_alone(const struct pen_plan *plan, uint32_t rank,
                                struct pen_problem *problem) {
  const struct pen_rank_memory *m = &plan->memory[rank];
  if (m->shard_staging_offset % PEN_ALIGNMENT_BYTES != 0 ||
      m->shard_staging_offset != m->staged_input_offset)
    return pen_problem_note(
        problem, rank, PEN_NONE, "the shard staging is at %llu, but its block at %llu",
        (unsigned long long)m->shard_staging_offset, (unsigned long long)m->staged_input_offset);
  if (plan->staged_input_count == 0 &&
      (m->staged_input_bytes | m->step_stats_offset | m->settings_offset | m->reduce_offset |
       m->flags_offset | m->pinned_bytes) == 0 &&
      (pen_peers_send_shards(plan) || (m->staged_input_offset | m->device_control_bytes) == 0))
    return true;
  return pen_problem_note(problem, rank, PEN_NONE,
                          "a device control block, but the device (%s) has no memory of its own",
                          pen_device_row(plan->device)->text);
}

bool pen_check_device_control(const struct pen_plan *plan, struct pen_problem *problem) {
  bool staged = !pen_device_row(plan->device)->on_host;
  for (uint32_t i = 0; i < plan->staged_input_count; i++)
    if (plan->staged_inputs[i].rank >= plan->rank_count)
      return pen_problem_note(problem, PEN_NONE, PEN_NONE, "staged input %u is of rank %u of %u", i,
                              plan->staged_inputs[i].rank, plan->rank_count);
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    if (!staged && !check_staging_alone(plan, rank, problem)) return false;
    if (staged &&
        (!check_control_parts(plan, rank, problem) || !check_staged_inputs(plan, rank, problem)))
      return false;
    for (uint32_t i = 0; staged && i < plan->profile_count; i++)
      if (!check_data_ops(plan, &plan->profiles[i], rank, problem)) return false;
  }
  return true;
}
