/* columns.c: the columns of the plan's tables, from plan.def, and a walk over all tables. */
#include "gen/emit/columns.h"

#define PEN_TABLE(tag, kind, name, rows, meaning) static const struct pen_column tag##_columns[] = {
#define PEN_COLUMN(tag, type, field, format, meaning) \
  {#field, offsetof(struct pen_##tag, field), sizeof(type), 0, PEN_AS_##format},
#define PEN_ARRAY(tag, type, field, count, format, meaning) \
  {#field, offsetof(struct pen_##tag, field), sizeof(type), count, PEN_AS_##format},
#define PEN_TABLE_END(tag) \
  }                        \
  ;
#include "runtime/plan/plan.def"

enum { ORDERED, NAMED };
const struct pen_schema pen_schemas[PEN_SCHEMAS] = {
#define PEN_TABLE(tag, kind, name, rows, meaning)    \
  {"pen_" #tag,                                      \
   name,                                             \
   rows,                                             \
   tag##_columns,                                    \
   sizeof tag##_columns / sizeof(struct pen_column), \
   sizeof(struct pen_##tag)},
#define PEN_TABLE_END(tag)
#include "runtime/plan/plan.def"
};

struct walk {
  void (*visit)(const struct pen_table *table, void *context);
  void *context;
  struct pen_table table;
};

static void visit_table(struct walk *walk, enum pen_schema_index schema, const void *rows,
                        size_t count) {
  walk->table.schema = &pen_schemas[schema];
  walk->table.rows = rows;
  walk->table.count = count;
  walk->visit(&walk->table, walk->context);
}

static void visit_rank(struct walk *walk, const struct pen_rank_program *rank) {
  visit_table(walk, PEN_SCHEMA_ACTION, rank->actions, rank->action_count);
  visit_table(walk, PEN_SCHEMA_PROGRAM, rank->programs, rank->program_count);
  visit_table(walk, PEN_SCHEMA_OP, rank->ops, rank->op_count);
  visit_table(walk, PEN_SCHEMA_TENSOR, rank->tensors, rank->tensor_count);
  visit_table(walk, PEN_SCHEMA_FRAME, rank->frames, rank->frame_count);
  visit_table(walk, PEN_SCHEMA_COLLECTIVE, rank->collectives, rank->collective_count);
  visit_table(walk, PEN_SCHEMA_PUT, rank->puts, rank->put_count);
}

static void visit_profile(struct walk *walk, const struct pen_plan *plan,
                          const struct pen_profile *profile) {
  walk->table.profile = profile;
  visit_table(walk, PEN_SCHEMA_STAGE, profile->stages, plan->stage_count);
  visit_table(walk, PEN_SCHEMA_MESSAGE, profile->messages, profile->message_count);
  visit_table(walk, PEN_SCHEMA_CHANNEL, profile->channels, profile->channel_count);
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    walk->table.rank = rank;
    visit_rank(walk, &profile->ranks[rank]);
  }
  walk->table.rank = PEN_NONE;
  visit_table(walk, PEN_SCHEMA_RANK_PROGRAM, profile->ranks, plan->rank_count);
  walk->table.profile = NULL;
}

void pen_tables_each(const struct pen_plan *plan,
                     void (*visit)(const struct pen_table *table, void *context), void *context) {
  struct walk walk = {.visit = visit, .context = context, .table = {.rank = PEN_NONE}};
  visit_table(&walk, PEN_SCHEMA_WEIGHT, plan->weights, plan->weight_count);
  if (plan->tie_count) visit_table(&walk, PEN_SCHEMA_TIE, plan->ties, plan->tie_count);
  visit_table(&walk, PEN_SCHEMA_MEMORY, plan->memory, plan->rank_count);
  if (plan->staged_input_count)
    visit_table(&walk, PEN_SCHEMA_STAGED_INPUT, plan->staged_inputs, plan->staged_input_count);
  if (plan->tensor_rank_dim_count)
    visit_table(&walk, PEN_SCHEMA_TENSOR_RANK_DIM, plan->tensor_rank_dims,
                plan->tensor_rank_dim_count);
  if (plan->input_count) visit_table(&walk, PEN_SCHEMA_INPUT, plan->inputs, plan->input_count);
  if (plan->output_count) visit_table(&walk, PEN_SCHEMA_OUTPUT, plan->outputs, plan->output_count);
  if (plan->share_count) visit_table(&walk, PEN_SCHEMA_SHARE, plan->shares, plan->share_count);
  if (plan->router_loss_count)
    visit_table(&walk, PEN_SCHEMA_ROUTER_LOSS, plan->router_losses, plan->router_loss_count);
  if (plan->router_count) visit_table(&walk, PEN_SCHEMA_ROUTER, plan->routers, plan->router_count);
  if (plan->pointwise_count)
    visit_table(&walk, PEN_SCHEMA_POINTWISE, plan->pointwise, plan->pointwise_count);
  for (uint32_t index = 0; index < plan->profile_count; index++)
    visit_profile(&walk, plan, &plan->profiles[index]);
  visit_table(&walk, PEN_SCHEMA_PROFILE, plan->profiles, plan->profile_count);
  visit_table(&walk, PEN_SCHEMA_OPTIMIZER, &plan->optimizer, 1);
  visit_table(&walk, PEN_SCHEMA_PLAN, plan, 1);
}
