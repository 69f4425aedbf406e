/* device_state.c: the device control block of each arena, and the pinned host memory (plan.h).
 *
 * The staged inputs of a rank follow from the data ops of its programs in all profiles: one for
 * each kind, dtype and dims, since the output of such an op depends on these and the microbatch
 * alone. A staged input has space for the most microbatches of any profile with such an op. */
#include <string.h>

#include "gen/layout/device_state.h"
#include "gen/model/op_signature.h"
#include "gen/model/unit_collectives.h"
#include "gen/layout/collectives.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/lower/lower.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

static bool is_input_of(const struct pen_staged_input *input, uint32_t rank,
                        const struct pen_op *op) {
  return input->rank == rank && input->kind == op->kind && input->dtype == op->dtype &&
         memcmp(input->dim, op->dim, sizeof op->dim) == 0;
}

/* Adds staged inputs for the outputs of an op that runs for so many microbatches, or enlarges them.
 */
static void add_input(struct pen_staged_inputs *inputs, uint32_t rank, const struct pen_op *op,
                      uint32_t microbatches) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  bool known = false;
  if (!signature->is_data) return;
  for (uint32_t i = 0; i < inputs->count; i++)
    if (is_input_of(&inputs->input[i], rank, op)) {
      known = true;
      if (inputs->microbatches[i] < microbatches) inputs->microbatches[i] = microbatches;
    }
  const size_t wanted = inputs->count + (size_t)signature->operand_count;
  PEN_RESERVE(inputs->input, wanted);
  PEN_RESERVE(inputs->microbatches, wanted);
  for (uint16_t k = signature->input_count; k < signature->operand_count && !known; k++) {
    inputs->microbatches[inputs->count] = microbatches;
    struct pen_staged_input *input = &inputs->input[inputs->count++];
    uint64_t bytes = pen_operand_bytes(&signature->operand[k], op->dtype, op->dim);
    *input = (struct pen_staged_input){.rank = rank,
                                       .kind = op->kind,
                                       .operand = k,
                                       .dtype = op->dtype,
                                       .bytes = bytes,
                                       .microbatch_bytes = pen_aligned(bytes)};
    memcpy(input->dim, op->dim, sizeof op->dim);
  }
}

/* The data ops of a rank, as the profiles' stages come. */
static void find_inputs(struct pen_staged_inputs *inputs, const struct pen_layout_state *l,
                        size_t profile_count, uint32_t rank) {
  for (size_t i = 0; i < profile_count; i++)
    for (uint32_t s = 0; s < l[i].partition->stage_count; s++) {
      if (l[i].partition->rank_of[s] != rank) continue;
      const struct pen_graph *graph = l[i].input->graph[s];
      for (int program = 0; program < PEN_PROGRAMS; program++)
        for (size_t k = 0; k < graph->program[program].count; k++)
          add_input(inputs, rank, &graph->program[program].op[k], l[i].partition->microbatch_count);
    }
}

/* NORM's workspace: an f64 for each block of the shards that it measures. The first tensor rank
 * owns the most weights. */
static uint64_t reduce_bytes(const struct pen_plan *plan, uint32_t rank) {
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[i];
    if (weight->rank == rank && pen_first_tensor_rank(plan, weight) == 0 && !weight->frozen)
      blocks += pen_most_blocks_in(pen_division_of(weight, pen_group_size(plan, PEN_SHARD)));
  }
  return blocks * sizeof(double);
}

/* The collectives within the program of an action. */
static uint32_t program_collectives(const struct pen_layout_state *l,
                                    const struct pen_action *action) {
  int program = pen_program_of(action->kind);
  return program < 0 ? 0
                     : pen_program_collectives(&l->input->graph[action->stage]->program[program]);
}

/* The flags that others write: see plan.h. */
static uint64_t flag_bytes(const struct pen_layout_state *l, size_t profile_count, uint32_t rank) {
  const uint64_t replicas = pen_group_size(l->plan, PEN_DATA),
                 tensor_ranks = pen_group_size(l->plan, PEN_TENSOR);
  uint64_t most = 0;
  for (size_t i = 0; i < profile_count; i++) {
    const struct pen_lowered *lowered = l[i].lowered;
    uint64_t words = 2 * (uint64_t)lowered->message_count + pen_process_count(l->plan);
    if (tensor_ranks > 1) words += 2 * tensor_ranks;
    for (uint32_t index = 0; index < lowered->count[rank] && replicas > 1; index++) {
      const struct pen_action *action = &lowered->action[rank][index];
      words +=
          replicas * (pen_kind_is_collective(action->kind) + program_collectives(&l[i], action));
    }
    if (words > most) most = words;
  }
  return most * sizeof(uint32_t);
}

static uint64_t larger_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What an action receives at one time, for one weight after the other, from all other members. */
static uint64_t action_staging(const struct pen_put_source *of, int kind, uint64_t others) {
  struct pen_stage_puts list = {.count = 0};
  uint64_t most = 0;
  pen_list_puts(of, kind, &list);
  for (size_t i = 0; i < list.count; i++) {
    const uint32_t weight = list.put[i].row.weight - of->first_weight;
    most = larger_of(
        most, pen_staging_bytes(of->partition, &list.put[i].row, &of->graph->weight[weight]));
  }
  pen_free(list.put);
  return others * most;
}

/* What a group of ops of a program receives, for all weights together. */
static uint64_t program_staging(const struct pen_put_source *of, const struct pen_op_list *program,
                                uint64_t others) {
  uint64_t most = 0, bytes = 0;
  for (size_t i = 0; i < program->count; i++) {
    if (program->op[i].kind == PEN_OP_REDUCE_SCATTER) {
      const struct pen_put put = pen_put_of_op(of, &program->op[i]);
      bytes +=
          pen_staging_bytes(of->partition, &put, &of->graph->weight[put.weight - of->first_weight]);
    } else {
      bytes = 0;
    }
    most = larger_of(most, bytes);
  }
  return others * most;
}

/* What peers send at one time for sums, where their memory cannot be read. */
static uint64_t shard_staging_size(const struct pen_layout_state *l, size_t profile_count,
                                   uint32_t rank) {
  const struct pen_plan *plan = l->plan;
  const uint64_t others = pen_group_size(plan, PEN_SHARD) - 1,
                 groups = pen_group_size(plan, PEN_SAME_SHARD) - 1;
  uint64_t most = 0;
  for (size_t i = 0; i < profile_count && pen_peers_send_shards(plan); i++)
    for (uint32_t s = 0; s < l[i].partition->stage_count; s++) {
      if (l[i].partition->rank_of[s] != rank) continue;
      const struct pen_put_source source = pen_put_source_of(&l[i], s);
      if (!plan->reduces_microbatches)
        most = larger_of(most, action_staging(&source, PEN_REDUCE_SCATTER, others));
      for (int p = 0; p < PEN_PROGRAMS; p++)
        most = larger_of(most, program_staging(&source, &source.graph->program[p], others));
      if (groups) most = larger_of(most, action_staging(&source, PEN_REDUCE_GROUPS, groups));
    }
  return most;
}

uint64_t pen_shard_staging_place(const struct pen_layout_state *l, size_t profile_count,
                                 uint32_t rank, uint64_t at) {
  struct pen_rank_memory *memory = &l->memory[rank];
  memory->device_control_bytes = shard_staging_size(l, profile_count, rank);
  if (memory->device_control_bytes > 0)
    memory->staged_input_offset = memory->shard_staging_offset = at;
  return at + memory->device_control_bytes;
}

uint64_t pen_device_control_place(const struct pen_layout_state *l, size_t profile_count,
                                  uint32_t rank, uint64_t at, struct pen_staged_inputs *inputs) {
  const struct pen_plan *plan = l->plan;
  struct pen_rank_memory *memory = &l->memory[rank];
  uint32_t first = inputs->count;
  uint64_t end = at + pen_aligned(sizeof(struct pen_adamw));
  find_inputs(inputs, l, profile_count, rank);
  for (uint32_t i = first; i < inputs->count; i++) {
    uint64_t bytes;
    inputs->input[i].offset = end;
    if (__builtin_mul_overflow(inputs->input[i].microbatch_bytes, (uint64_t)inputs->microbatches[i],
                               &bytes) ||
        __builtin_add_overflow(end, bytes, &end))
      pen_stop(PEN_EXIT_TOPOLOGY,
               "penstock-gen: the inputs of a step are too large: pipeline.microbatches, "
               "batch.microbatch, model.sequence");
  }
  const uint64_t own_stats_bytes = pen_stats_entries(plan) * sizeof(double);
  const uint64_t stats_bytes = pen_aligned(pen_group_size(plan, PEN_DATA) * own_stats_bytes);
  memory->staged_input_offset = at;
  memory->staged_input_bytes = end - at;
  memory->step_stats_offset = end;
  memory->settings_offset = memory->step_stats_offset + stats_bytes;
  memory->reduce_offset = memory->settings_offset + pen_aligned(sizeof(struct pen_adamw));
  memory->flags_offset = memory->reduce_offset + pen_aligned(reduce_bytes(plan, rank));
  memory->shard_staging_offset =
      memory->flags_offset + pen_aligned(flag_bytes(l, profile_count, rank));
  memory->device_control_bytes =
      memory->shard_staging_offset + shard_staging_size(l, profile_count, rank) - at;
  memory->pinned_bytes =
      PEN_STEPS_AHEAD * (memory->staged_input_bytes + pen_aligned(own_stats_bytes)) +
      PEN_ALIGNMENT_BYTES + PEN_STAGING_BYTES * (memory->snapshot_bytes ? 2 : 1);
  return at + memory->device_control_bytes;
}
