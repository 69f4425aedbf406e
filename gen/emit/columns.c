/* columns.c: the columns of the plan's tables, in the order of plan.h, and a walk over all tables.
 * A column that is added to plan.h is added here, and is then emitted, covered by the digest, and
 * broken by the verifier's tests; tests/gen/emit.c finds what is missing. */
#include "gen/emit/columns.h"
#include "runtime/plan/plan.h"

#define PLAIN(type, field, format) \
  { #field, offsetof(struct type, field), sizeof((struct type *)0)->field, 0, format }
#define ARRAY(type, field, count, format) \
  { #field, offsetof(struct type, field), sizeof(*((struct type *)0)->field), count, format }

static const struct pen_column action[] = {
    PLAIN(pen_action, kind, PEN_AS_ACTION),       PLAIN(pen_action, stage, PEN_AS_NUMBER),
    PLAIN(pen_action, microbatch, PEN_AS_NUMBER), PLAIN(pen_action, message, PEN_AS_INDEX),
    PLAIN(pen_action, program, PEN_AS_INDEX),     PLAIN(pen_action, frame, PEN_AS_INDEX),
    PLAIN(pen_action, overlaps, PEN_AS_FLAG),
};
static const struct pen_column program[] = {
    PLAIN(pen_program, stage, PEN_AS_NUMBER),
    PLAIN(pen_program, kind, PEN_AS_ACTION),
    PLAIN(pen_program, first_op, PEN_AS_NUMBER),
    PLAIN(pen_program, op_count, PEN_AS_NUMBER),
    PLAIN(pen_program, recompute_op_count, PEN_AS_NUMBER),
};
static const struct pen_column op[] = {
    PLAIN(pen_op, kind, PEN_AS_OP),
    PLAIN(pen_op, dtype, PEN_AS_DTYPE),
    ARRAY(pen_op, operand, PEN_OPERANDS_MAX, PEN_AS_INDEX),
    PLAIN(pen_op, workspace, PEN_AS_INDEX),
    ARRAY(pen_op, dim, PEN_DIMS_MAX, PEN_AS_SIGNED),
    ARRAY(pen_op, real, PEN_REALS_MAX, PEN_AS_REAL),
};
static const struct pen_column tensor[] = {
    PLAIN(pen_tensor, name, PEN_AS_TEXT),    PLAIN(pen_tensor, dtype, PEN_AS_DTYPE),
    PLAIN(pen_tensor, base, PEN_AS_BASE),    PLAIN(pen_tensor, offset, PEN_AS_NUMBER),
    PLAIN(pen_tensor, bytes, PEN_AS_NUMBER),
};
static const struct pen_column frame[] = {
    ARRAY(pen_frame, base, PEN_BASES, PEN_AS_NUMBER),
};
static const struct pen_column rank_program[] = {
    PLAIN(pen_rank_program, action_count, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, program_count, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, op_count, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, tensor_count, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, frame_count, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, start_first_op, PEN_AS_NUMBER),
    PLAIN(pen_rank_program, start_op_count, PEN_AS_NUMBER),
};
static const struct pen_column stage[] = {
    PLAIN(pen_stage, rank, PEN_AS_NUMBER),
    PLAIN(pen_stage, first_layer, PEN_AS_NUMBER),
    PLAIN(pen_stage, past_last_layer, PEN_AS_NUMBER),
    PLAIN(pen_stage, input, PEN_AS_INDEX),
    PLAIN(pen_stage, output, PEN_AS_INDEX),
    PLAIN(pen_stage, output_gradient, PEN_AS_INDEX),
    PLAIN(pen_stage, input_gradient, PEN_AS_INDEX),
    PLAIN(pen_stage, recomputes, PEN_AS_FLAG),
    PLAIN(pen_stage, first_block, PEN_AS_TEXT),
};
static const struct pen_column message[] = {
    PLAIN(pen_message, kind, PEN_AS_ACTION),
    PLAIN(pen_message, stage, PEN_AS_NUMBER),
    PLAIN(pen_message, microbatch, PEN_AS_NUMBER),
    PLAIN(pen_message, channel, PEN_AS_NUMBER),
    PLAIN(pen_message, sequence, PEN_AS_NUMBER),
    PLAIN(pen_message, credit, PEN_AS_INDEX),
    PLAIN(pen_message, source_offset, PEN_AS_NUMBER),
    PLAIN(pen_message, target_offset, PEN_AS_NUMBER),
    PLAIN(pen_message, bytes, PEN_AS_NUMBER),
};
static const struct pen_column channel[] = {
    PLAIN(pen_channel, from_rank, PEN_AS_NUMBER),
    PLAIN(pen_channel, to_rank, PEN_AS_NUMBER),
    PLAIN(pen_channel, message_count, PEN_AS_NUMBER),
    PLAIN(pen_channel, credit_count, PEN_AS_NUMBER),
};
static const struct pen_column weight[] = {
    PLAIN(pen_weight, name, PEN_AS_TEXT),
    PLAIN(pen_weight, stage, PEN_AS_NUMBER),
    PLAIN(pen_weight, rank, PEN_AS_NUMBER),
    PLAIN(pen_weight, dim_count, PEN_AS_NUMBER),
    ARRAY(pen_weight, dim, PEN_WEIGHT_DIMS_MAX, PEN_AS_NUMBER),
    PLAIN(pen_weight, count, PEN_AS_NUMBER),
    PLAIN(pen_weight, initial, PEN_AS_INITIAL),
    PLAIN(pen_weight, deviation, PEN_AS_REAL),
    PLAIN(pen_weight, frozen, PEN_AS_FLAG),
    PLAIN(pen_weight, weight_decay, PEN_AS_REAL),
    PLAIN(pen_weight, value_sharded, PEN_AS_FLAG),
    PLAIN(pen_weight, bf16_sharded, PEN_AS_FLAG),
    PLAIN(pen_weight, value_offset, PEN_AS_OFFSET),
    PLAIN(pen_weight, gradient_offset, PEN_AS_OFFSET),
    PLAIN(pen_weight, exp_avg_offset, PEN_AS_OFFSET),
    PLAIN(pen_weight, exp_avg_sq_offset, PEN_AS_OFFSET),
    PLAIN(pen_weight, bf16_offset, PEN_AS_OFFSET),
    PLAIN(pen_weight, value_file, PEN_AS_OFFSET),
    PLAIN(pen_weight, exp_avg_file, PEN_AS_OFFSET),
    PLAIN(pen_weight, exp_avg_sq_file, PEN_AS_OFFSET),
};
static const struct pen_column tie[] = {
    PLAIN(pen_tie, weight, PEN_AS_INDEX),
    PLAIN(pen_tie, rank, PEN_AS_NUMBER),
    PLAIN(pen_tie, dtype, PEN_AS_DTYPE),
    PLAIN(pen_tie, value_offset, PEN_AS_OFFSET),
    PLAIN(pen_tie, gradient_offset, PEN_AS_OFFSET),
};
static const struct pen_column memory[] = {
    PLAIN(pen_rank_memory, arena_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, receive_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, persistent_end, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, shared_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, weight_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, bf16_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, gradient_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, moment_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, constant_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, snapshot_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, snapshot_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, activation_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, live_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, staged_input_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, staged_input_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, step_stats_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, settings_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, reduce_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, flags_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, shard_staging_offset, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, device_control_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, pinned_bytes, PEN_AS_NUMBER),
    PLAIN(pen_rank_memory, receive_slots, PEN_AS_NUMBER),
};
static const struct pen_column feed[] = {
    PLAIN(pen_staged_input, rank, PEN_AS_NUMBER),
    PLAIN(pen_staged_input, kind, PEN_AS_OP),
    PLAIN(pen_staged_input, operand, PEN_AS_NUMBER),
    PLAIN(pen_staged_input, dtype, PEN_AS_DTYPE),
    ARRAY(pen_staged_input, dim, PEN_DIMS_MAX, PEN_AS_SIGNED),
    PLAIN(pen_staged_input, offset, PEN_AS_NUMBER),
    PLAIN(pen_staged_input, bytes, PEN_AS_NUMBER),
    PLAIN(pen_staged_input, microbatch_bytes, PEN_AS_NUMBER),
};

#define FORM(type, columns) \
  { #type, columns, sizeof columns / sizeof *columns, sizeof(struct type) }
const struct pen_schema pen_schemas[PEN_SCHEMAS] = {
    [PEN_SCHEMA_ACTION] = FORM(pen_action, action),
    [PEN_SCHEMA_PROGRAM] = FORM(pen_program, program),
    [PEN_SCHEMA_OP] = FORM(pen_op, op),
    [PEN_SCHEMA_TENSOR] = FORM(pen_tensor, tensor),
    [PEN_SCHEMA_FRAME] = FORM(pen_frame, frame),
    [PEN_SCHEMA_RANK_PROGRAM] = FORM(pen_rank_program, rank_program),
    [PEN_SCHEMA_STAGE] = FORM(pen_stage, stage),
    [PEN_SCHEMA_MESSAGE] = FORM(pen_message, message),
    [PEN_SCHEMA_CHANNEL] = FORM(pen_channel, channel),
    [PEN_SCHEMA_WEIGHT] = FORM(pen_weight, weight),
    [PEN_SCHEMA_TIE] = FORM(pen_tie, tie),
    [PEN_SCHEMA_MEMORY] = FORM(pen_rank_memory, memory),
    [PEN_SCHEMA_STAGED_INPUT] = FORM(pen_staged_input, feed),
};

/* ---- the walk ---- */

struct walk {
  void (*visit)(const struct pen_table *table, void *context);
  void *context;
  struct pen_table at;
};

static void visit(struct walk *walk, enum pen_schema_index form, const void *rows, size_t count) {
  walk->at.form = &pen_schemas[form];
  walk->at.rows = rows;
  walk->at.count = count;
  walk->visit(&walk->at, walk->context);
}

static void visit_rank(struct walk *walk, const struct pen_rank_program *tables) {
  visit(walk, PEN_SCHEMA_ACTION, tables->actions, tables->action_count);
  visit(walk, PEN_SCHEMA_PROGRAM, tables->programs, tables->program_count);
  visit(walk, PEN_SCHEMA_OP, tables->ops, tables->op_count);
  visit(walk, PEN_SCHEMA_TENSOR, tables->tensors, tables->tensor_count);
  visit(walk, PEN_SCHEMA_FRAME, tables->frames, tables->frame_count);
}

void pen_tables_each(const struct pen_plan *plan,
                     void (*function)(const struct pen_table *table, void *context),
                     void *context) {
  struct walk walk = {.visit = function, .context = context, .at = {.rank = PEN_NONE}};
  visit(&walk, PEN_SCHEMA_WEIGHT, plan->weights, plan->weight_count);
  if (plan->tie_count) visit(&walk, PEN_SCHEMA_TIE, plan->ties, plan->tie_count);
  visit(&walk, PEN_SCHEMA_MEMORY, plan->memory, plan->rank_count);
  visit(&walk, PEN_SCHEMA_STAGED_INPUT, plan->feeds, plan->staged_input_count);
  for (uint32_t index = 0; index < plan->profile_count; index++) {
    const struct pen_profile *profile = walk.at.profile = &plan->profiles[index];
    walk.at.rank = PEN_NONE;
    visit(&walk, PEN_SCHEMA_STAGE, profile->stages, plan->stage_count);
    visit(&walk, PEN_SCHEMA_MESSAGE, profile->messages, profile->message_count);
    visit(&walk, PEN_SCHEMA_CHANNEL, profile->channels, profile->channel_count);
    for (walk.at.rank = 0; walk.at.rank < plan->rank_count; walk.at.rank++)
      visit_rank(&walk, &profile->ranks[walk.at.rank]);
    walk.at.rank = PEN_NONE;
    visit(&walk, PEN_SCHEMA_RANK_PROGRAM, profile->ranks, plan->rank_count);
  }
}
