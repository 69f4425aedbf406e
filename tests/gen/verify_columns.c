/* verify_columns.c: random changes to each column of each table of a plan, against a machine that
 * executes plans on symbols.
 *
 * The machine keeps, for each 64 bytes of each arena, a hash of how they were computed: which op,
 * from which inputs. Ranks take turns at random. The behavior of a plan is what weights and losses
 * hold after some steps. A changed plan that the verifier accepts must have the behavior of the
 * original. Columns that define the model, the optimizer or the files, or only inform, are listed
 * below: a verifier without knowledge of the model cannot check them.
 */
#include <stdio.h>

#include "gen/emit/columns.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/broken.h"

enum {
  STEPS = 2,
  BLOCK_BYTES = PEN_ALIGNMENT_BYTES,
  ROUNDS = 2500,
  TABLES_MAX = 256,
  PROFILES_MAX = 2
};

/* ---- the machine ---- */

struct machine {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  uint64_t **block;            /* [rank][block] */
  uint64_t *loss;              /* [microbatch] */
  uint64_t *board;             /* [rank] sum over the rank's gradients */
  uint32_t *next, *step;       /* [rank] */
  uint64_t *arrived, *credits; /* [channel] */
  uint32_t *published;         /* [rank] steps */
  uint64_t behaviour;          /* losses of all steps */
  bool wrong;
};

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 29;
}

static uint64_t blocks_of(uint64_t bytes) { return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES; }

/* The blocks of a range of an arena, or null with `wrong` set. */
static uint64_t *range(struct machine *m, uint32_t rank, uint64_t first, uint64_t bytes) {
  static uint64_t none;
  uint64_t arena = m->plan->memory[rank].arena_bytes;
  if (first % BLOCK_BYTES == 0 && first <= arena && bytes <= arena - first)
    return &m->block[rank][first / BLOCK_BYTES];
  m->wrong = true;
  return &none;
}

/* The bytes of an operand in the action's frame; null for the loss table, whose entries are smaller
 * than a block. */
static uint64_t *operand(struct machine *m, uint32_t rank, const struct pen_frame *frame,
                         uint32_t tensor, uint64_t *count) {
  const struct pen_tensor *t = &m->profile->ranks[rank].tensors[tensor];
  *count = blocks_of(t->bytes);
  return t->base == PEN_BASE_LOSS ? NULL
                                  : range(m, rank, frame->base[t->base] + t->offset, t->bytes);
}

static void leave_loss(struct machine *m, uint32_t rank, const struct pen_frame *frame,
                       uint64_t made) {
  uint64_t entry = (frame->base[PEN_BASE_LOSS] - m->plan->loss_offset) / sizeof(double);
  bool own = m->profile->stages[m->plan->stage_count - 1].rank == rank;
  if (!own || entry >= m->plan->microbatch_count || frame->base[PEN_BASE_LOSS] % sizeof(double))
    m->wrong = true;
  else
    m->loss[entry] = made;
}

static void run_op(struct machine *m, uint32_t rank, const struct pen_frame *frame,
                   const struct pen_op *op, uint32_t microbatch) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  uint64_t made = mix(op->kind, signature->is_data ? mix(microbatch, m->step[rank]) : 0), count;
  for (int n = 0; n < signature->dim_count; n++) made = mix(made, (uint64_t)op->dim[n]);
  for (int n = 0; n < signature->real_count; n++) made = mix(made, (uint64_t)(op->real[n] * 1e9));
  for (int k = 0; k < signature->input_count && !m->wrong; k++) {
    if (op->operand[k] == PEN_NONE) continue;
    const uint64_t *at = operand(m, rank, frame, op->operand[k], &count);
    for (uint64_t n = 0; at && n < count && !m->wrong; n++) made = mix(made, at[n]);
  }
  if (op->workspace != PEN_NONE) {
    uint64_t *at = operand(m, rank, frame, op->workspace, &count);
    for (uint64_t n = 0; n < count && !m->wrong; n++) at[n] = mix(0xdead, n);
  }
  for (int k = signature->input_count; k < signature->operand_count && !m->wrong; k++) {
    if (op->operand[k] == PEN_NONE) continue;
    uint64_t *at = operand(m, rank, frame, op->operand[k], &count);
    if (!at) leave_loss(m, rank, frame, made);
    for (uint64_t n = 0; at && n < count && !m->wrong; n++)
      at[n] = (signature->operand[k].accumulates ? at[n] : 0) +
              mix(mix(made, (uint64_t)k), n); /* sums in any order are one sum */
  }
}

static void compute(struct machine *m, uint32_t rank, const struct pen_action *row) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  const struct pen_program *program = &tables->programs[row->program];
  for (uint32_t index = 0; index < program->op_count && !m->wrong; index++)
    run_op(m, rank, &tables->frames[row->frame], &tables->ops[program->first_op + index],
           row->microbatch);
}

static void put(struct machine *m, const struct pen_message *message) {
  const struct pen_channel *channel = &m->profile->channels[message->channel];
  uint64_t *target = range(m, channel->to_rank, message->target_offset, message->bytes);
  const uint64_t *source = range(m, channel->from_rank, message->source_offset, message->bytes);
  for (uint64_t n = 0; n < blocks_of(message->bytes) && !m->wrong; n++) target[n] = source[n];
  m->arrived[message->channel]++;
}

/* A bf16 copy of a weight, `to` on some rank: what becomes of two of its blocks, or of the last
 * one. */
static void narrow(struct machine *m, const struct pen_weight *weight, uint32_t rank, uint64_t to) {
  if (to == UINT64_MAX) return;
  const uint64_t *value = range(m, weight->rank, weight->value_offset, weight->count * 4);
  uint64_t *copy = range(m, rank, to, weight->count * 2), blocks = blocks_of(weight->count * 4);
  for (uint64_t n = 0; n < blocks_of(weight->count * 2) && !m->wrong; n++)
    copy[n] = mix(value[2 * n], 2 * n + 1 < blocks ? value[2 * n + 1] : 0);
}

/* What NORM writes to the step statistics, and what UPDATE computes from it. */
static void end_step(struct machine *m, uint32_t rank, bool update) {
  uint64_t norm = 0;
  if (!update) m->board[rank] = 0;
  for (uint32_t other = 0; other < m->plan->rank_count && m->plan->optimizer.clip_norm > 0; other++)
    norm += m->board[other];
  for (uint32_t index = 0; index < m->plan->weight_count; index++) {
    const struct pen_weight *weight = &m->plan->weights[index];
    if (weight->rank != rank || weight->frozen) continue;
    uint64_t *value = range(m, rank, weight->value_offset, weight->count * 4),
             *gradient = range(m, rank, weight->gradient_offset, weight->count * 4);
    uint64_t *first = range(m, rank, weight->exp_avg_offset, weight->count * 4),
             *second = range(m, rank, weight->exp_avg_sq_offset, weight->count * 4);
    for (uint64_t n = 0; n < blocks_of(weight->count * 4) && !m->wrong; n++) {
      if (!update) {
        m->board[rank] += gradient[n];
        continue;
      }
      first[n] = mix(first[n], gradient[n]);
      second[n] = mix(second[n], gradient[n] + 1);
      value[n] = mix(mix(value[n], norm), mix(first[n], second[n]));
      gradient[n] = 0;
    }
    if (update && !m->wrong) narrow(m, weight, rank, weight->bf16_offset);
  }
}

/* ADD_TIED_GRAD, where the embedding is; and what UPDATE leaves of the head's gradient. */
static void tie(struct machine *m, uint32_t rank, const struct pen_action *row) {
  bool update = row->kind == PEN_UPDATE;
  for (uint32_t index = 0; index < m->plan->tie_count; index++) {
    const struct pen_tie *t = &m->plan->ties[index];
    const struct pen_weight *weight = &m->plan->weights[t->weight];
    if (weight->frozen || (update ? t->rank : weight->rank) != rank) continue;
    uint64_t from = update || t->rank == rank ? t->gradient_offset
                                              : m->profile->messages[row->message].target_offset,
             none = 0;
    uint64_t *head = range(m, rank, from, weight->count * 4);
    uint64_t *sum = update ? &none : range(m, rank, weight->gradient_offset, weight->count * 4);
    for (uint64_t n = 0; n < blocks_of(weight->count * 4) && !m->wrong; n++) {
      if (update)
        head[n] = 0;
      else
        sum[n] += head[n];
    }
  }
}

static bool all_published(const struct machine *m, uint32_t step) {
  for (uint32_t rank = 0; rank < m->plan->rank_count; rank++)
    if (m->published[rank] <= step) return false;
  return true;
}

/* Does an action block? */
static bool blocks(const struct machine *m, uint32_t rank, const struct pen_action *row) {
  uint64_t step = m->step[rank];
  if (row->kind == PEN_WAIT_NORM) return !all_published(m, m->step[rank]);
  if (row->kind < PEN_SEND_F || row->kind > PEN_WAIT_V) return false;
  const struct pen_message *message = &m->profile->messages[row->message];
  const struct pen_channel *channel = &m->profile->channels[message->channel];
  if (pen_kind_sends(row->kind))
    return message->credit != PEN_NONE &&
           m->credits[message->channel] < step * channel->credit_count + message->credit + 1;
  if (pen_kind_receives(row->kind)) return false;
  return m->arrived[message->channel] < step * channel->message_count + message->sequence + 1;
}

/* Runs the next action of a rank; false if it blocks or is at its end. */
static bool advance(struct machine *m, uint32_t rank) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  if (m->step[rank] == STEPS || m->wrong) return false;
  const struct pen_action *row = &tables->actions[m->next[rank]];
  if (blocks(m, rank, row)) return false;
  if (row->kind <= PEN_W) compute(m, rank, row);
  if (pen_kind_sends(row->kind)) put(m, &m->profile->messages[row->message]);
  if (pen_kind_receives(row->kind))
    m->credits[m->profile->messages[row->message].channel] +=
        m->profile->messages[row->message].credit != PEN_NONE;
  if (row->kind == PEN_ADD_TIED_GRAD || row->kind == PEN_UPDATE) tie(m, rank, row);
  if (row->kind == PEN_NORM || row->kind == PEN_UPDATE) end_step(m, rank, row->kind == PEN_UPDATE);
  if (row->kind == PEN_PUBLISH) {
    m->published[rank]++;
    for (uint32_t n = 0;
         m->profile->stages[m->plan->stage_count - 1].rank == rank && n < m->plan->microbatch_count;
         n++)
      m->behaviour = mix(m->behaviour, m->loss[n]);
  }
  if (++m->next[rank] == tables->action_count) {
    m->next[rank] = 0;
    m->step[rank]++;
  }
  return true;
}

/* Every weight, and whatever the start makes. */
static void fill(struct machine *m) {
  static const struct pen_frame no_frame;
  for (uint32_t index = 0; index < m->plan->weight_count; index++) {
    const struct pen_weight *weight = &m->plan->weights[index];
    uint64_t *value = range(m, weight->rank, weight->value_offset, weight->count * 4);
    for (uint64_t n = 0; n < blocks_of(weight->count * 4) && !m->wrong; n++)
      value[n] = mix(index + 1, n);
    if (!m->wrong) narrow(m, weight, weight->rank, weight->bf16_offset);
  }
  for (uint32_t index = 0; index < m->plan->tie_count && !m->wrong;
       index++) { /* the head's copy begins alike */
    const struct pen_tie *t = &m->plan->ties[index];
    if (t->weight < m->plan->weight_count && t->dtype == PEN_BF16) {
      narrow(m, &m->plan->weights[t->weight], t->rank, t->value_offset);
      continue;
    }
    uint64_t bytes = t->weight < m->plan->weight_count ? m->plan->weights[t->weight].count * 4 : 0;
    uint64_t *copy = range(m, t->rank, t->value_offset, bytes);
    for (uint64_t n = 0; n < blocks_of(bytes) && !m->wrong; n++) copy[n] = mix(t->weight + 1, n);
  }
  for (uint32_t rank = 0; rank < m->plan->rank_count; rank++)
    for (uint32_t n = 0; n < m->profile->ranks[rank].start_op_count; n++)
      run_op(m, rank, &no_frame,
             &m->profile->ranks[rank].ops[m->profile->ranks[rank].start_first_op + n], 0);
}

/* Runs a profile with random turns. Returns its behavior; 0 if it deadlocks or leaves its arenas.
 */
static uint64_t run(const struct pen_plan *plan, const struct pen_profile *profile,
                    uint64_t *seed) {
  uint32_t ranks = plan->rank_count, still = 0;
  struct machine m = {.plan = plan,
                      .profile = profile,
                      .block = pen_new(ranks, sizeof *m.block),
                      .next = pen_new(ranks, 4),
                      .step = pen_new(ranks, 4),
                      .arrived = pen_new(profile->channel_count + 1, 8),
                      .loss = pen_new(plan->microbatch_count, 8),
                      .board = pen_new(ranks, 8),
                      .credits = pen_new(profile->channel_count + 1, 8),
                      .published = pen_new(ranks, 4)};
  for (uint32_t rank = 0; rank < ranks; rank++)
    m.block[rank] = pen_new(blocks_of(plan->memory[rank].arena_bytes) + 1, 8);
  fill(&m);
  while (still < ranks && !m.wrong) {
    uint32_t rank = (uint32_t)draw(seed, ranks);
    bool moved = false;
    for (uint64_t turns = draw(seed, 4) ? 1 + draw(seed, 3) : 1 + draw(seed, 400);
         turns > 0 && advance(&m, rank); turns--)
      moved = true;
    if (moved)
      still = 0;
    else
      for (still = 0, rank = 0; rank < ranks; rank++) still += !advance(&m, rank);
  }
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (m.step[rank] < STEPS) return 0;
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[index];
    for (uint64_t n = 0; n < blocks_of(weight->count * 4); n++)
      m.behaviour = mix(m.behaviour, m.block[weight->rank][weight->value_offset / BLOCK_BYTES + n]);
  }
  return m.wrong ? 0 : m.behaviour;
}

/* ---- changes ---- */

/* Tables, and columns ("table.column"), that only the model's mathematics, the files, or a reader
 * need. */
static const char *const beyond[] = {
    "pen_profile",
    "pen_optimizer",
    "pen_plan",
    "pen_weight.dim_count",
    "pen_weight.dim",
    "pen_weight.initial",
    "pen_weight.deviation",
    "pen_weight.frozen",
    "pen_weight.weight_decay",
    "pen_weight.rate",
    "pen_weight.value_file",
    "pen_weight.exp_avg_file",
    "pen_weight.exp_avg_sq_file",
    "pen_stage.first_layer",
    "pen_stage.past_last_layer",
    "pen_stage.recompute",
    "pen_rank_memory.weight_bytes",
    "pen_rank_memory.bf16_bytes",
    "pen_rank_memory.gradient_bytes",
    "pen_rank_memory.moment_bytes",
    "pen_rank_memory.constant_bytes",
    "pen_rank_memory.snapshot_offset",
    "pen_rank_memory.snapshot_bytes",
    "pen_rank_memory.audit_offset",
    "pen_rank_memory.live_bytes",
    "pen_rank_memory.gathered_bytes",
    "pen_rank_memory.receive_slots",
};

static bool is_beyond(const char *name) {
  for (size_t n = 0; n < sizeof beyond / sizeof *beyond; n++)
    if (strcmp(beyond[n], name) == 0) return true;
  return false;
}

struct column_list {
  struct pen_table table[TABLES_MAX];
  size_t count;
};

static void list_table(const struct pen_table *table, void *context) {
  struct column_list *tables = context;
  if (tables->count < TABLES_MAX && table->count > 0) tables->table[tables->count++] = *table;
}

/* A value: that of another entry, an adjacent number, or one bit changed. */
static uint64_t changed(const struct pen_table *table, const struct pen_column *column,
                        uint64_t value, size_t index, uint64_t *seed) {
  switch (draw(seed, 4)) {
    case 0:
      return value + (draw(seed, 2) ? 1 : UINT64_MAX) *
                         (column->bytes == 8 && draw(seed, 2) ? BLOCK_BYTES : 1);
    case 1: return value ^ UINT64_C(1) << draw(seed, draw(seed, 2) ? 4 : 8 * column->bytes);
    default:
      return pen_column_value(
          column, (const char *)table->rows + draw(seed, table->count) * table->schema->row_bytes,
          index);
  }
}

static bool has_kind(const struct column_list *tables, const struct pen_schema *schema) {
  for (size_t n = 0; n < tables->count; n++)
    if (tables->table[n].schema == schema) return true;
  return false;
}

/* One of the tables: each kind that there is equally often. */
static const struct pen_table *draw_table(const struct column_list *tables, uint64_t *seed) {
  const struct pen_schema *schema;
  const struct pen_table *table;
  do schema = &pen_schemas[draw(seed, PEN_SCHEMAS)];
  while (!has_kind(tables, schema));
  do table = &tables->table[draw(seed, tables->count)];
  while (table->schema != schema);
  return table;
}

/* Changes one value of one column. Returns the column's name; null when nothing came of it. */
static const char *change(const struct pen_plan *plan, uint64_t *seed) {
  struct column_list tables = {.count = 0};
  pen_tables_each(plan, list_table, &tables);
  const struct pen_table *table = draw_table(&tables, seed);
  const struct pen_schema *schema = table->schema;
  if (is_beyond(schema->type)) return NULL;
  const struct pen_column *column = &schema->column[draw(seed, schema->column_count)];
  if (column->format == PEN_AS_TEXT) return NULL;
  size_t index = column->count ? draw(seed, column->count) : 0;
  char *row =
      WRITABLE(char, (const char *)table->rows + draw(seed, table->count) * schema->row_bytes);
  uint64_t value = pen_column_value(column, row, index),
           other = changed(table, column, value, index, seed);
  if (column->format == PEN_AS_FLAG) other = !value;
  if (schema == &pen_schemas[PEN_SCHEMA_RANK_PROGRAM] && strncmp(column->name, "start", 5) != 0)
    other = value ? draw(seed, value) : 0; /* rows there are */
  memcpy(row + column->offset + index * column->bytes, &other,
         column->bytes); /* little-endian, as the digest's test */
  return pen_column_value(column, row, index) == value
             ? NULL
             : pen_text("%s.%s", schema->type, column->name);
}

/* Do the ops of a profile define the model? Those that train, and those of an evaluation beside
 * them, are checked against each other; those of a plan that only evaluates, or of generation, are
 * not. */
static bool is_model(const struct pen_plan *plan, const struct pen_profile *profile) {
  return plan->profiles[0].kind != PEN_TRAIN || profile->kind == PEN_GENERATE ||
         profile->kind == PEN_CACHED;
}

/* What came of a change of a plan. */
struct outcome {
  uint64_t seed;
  bool accepted, rejected;
  char wrong[200];
};

/* Runs a plan, changes it, and runs it again where the verifier accepts it. */
static void change_and_compare(const struct pen_plan *plan, struct outcome *outcome) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  uint64_t before[PROFILES_MAX];
  for (uint32_t n = 0; n < plan->profile_count; n++)
    if (!(before[n] = run(plan, &plan->profiles[n], &outcome->seed)))
      strcpy(outcome->wrong, "the plan itself does not run");
  const char *name = change(plan, &outcome->seed);
  if (!name || is_beyond(name)) return;
  const bool of_op = strncmp(name, "pen_op.", 7) == 0;
  outcome->accepted = pen_verify(plan, &problem);
  outcome->rejected = !outcome->accepted;
  for (uint32_t n = 0; n < plan->profile_count && outcome->accepted; n++)
    if (run(plan, &plan->profiles[n], &outcome->seed) != before[n] &&
        !(of_op && is_model(plan, &plan->profiles[n])))
      snprintf(outcome->wrong, sizeof outcome->wrong,
               "%s changed, accepted, but %s behaves otherwise", name, plan->profiles[n].name);
}

/* Each plan is generated once: changes are made in children, see broken.h. */
static void accepted_changes_keep_the_behavior(void **state) {
  (void)state;
  uint64_t seed = 1414213562;
  unsigned accepted = 0, rejected = 0;
  struct pen_plan *plan[PLAN_SHAPES];
  for (size_t shape = 0; shape < PLAN_SHAPES; shape++) plan[shape] = shape_plan(shape);
  struct outcome *outcome = shared_memory(sizeof *outcome);
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint64_t here = seed, shape = draw(&seed, PLAN_SHAPES);
    *outcome = (struct outcome){.seed = seed};
    if (in_child()) {
      change_and_compare(plan[shape], outcome);
      _exit(0);
    }
    if (await_child() != 0 || outcome->wrong[0])
      fail_msg("seed %lu: %s", (unsigned long)here, outcome->wrong);
    accepted += outcome->accepted;
    rejected += outcome->rejected;
    seed = outcome->seed;
  }
  pen_free_all();
  print_message("# changes of a column: %u accepted, of the same behaviour; %u rejected\n",
                accepted, rejected);
  assert_true(accepted > ROUNDS / 50 && rejected > ROUNDS / 4);
}

/* Random turns do not change the behavior of a correct plan. */
static void the_order_of_turns_does_not_matter(void **state) {
  (void)state;
  uint64_t seed = 1732050807;
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    struct pen_plan *plan = shape_plan(which);
    uint64_t first = run(plan, &plan->profiles[0], &seed);
    assert_true(first != 0);
    for (unsigned again = 0; again < 5; again++)
      assert_true(run(plan, &plan->profiles[0], &seed) == first);
    pen_free_all();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_order_of_turns_does_not_matter),
                                     cmocka_unit_test(accepted_changes_keep_the_behavior)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
