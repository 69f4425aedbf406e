/* collective_plans.c: random plans with collectives, changes to their ops and actions, and a
 * runner.
 */
#include "tests/support/collective_plans.h"

/* ---- plans ---- */

/* A schedule and the stages a rank that it takes; ranks of `even` schedules are even. */
static const struct {
  const char *name;
  uint32_t stages;
  bool even;
} schedules[] = {{"1f1b", 1, false},          {"interleaved", 2, false}, {"zb_h1", 1, false},
                 {"zero_bubble_v", 2, false}, {"dual_pipe_v", 2, true},  {"1f1b", 2, false},
                 {"gpipe", 1, false},         {"looped_bfs", 2, false}};

static const char *one_of(uint64_t *seed, const char *const *text, size_t count) {
  return text[draw(seed, count)];
}
#define ONE_OF(seed, ...)                          \
  one_of(seed, (const char *const[]){__VA_ARGS__}, \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static bool has_experts;

void give_plans_experts(void) { has_experts = true; }

static const char *expert_sharing_text(uint64_t *seed) {
  const char *shard = ONE_OF(seed, "none", "optimizer", "gradients", "weights");
  const bool by_microbatch = !strcmp(shard, "gradients") || draw(seed, 2);
  return pen_text(
      "data_parallel = { replicas = %u; shard = \"%s\"; unit = \"%s\"; reduce = \"%s\"; };\n"
      "expert_parallel = { rows = %s; };\n",
      1 + (unsigned)draw(seed, 3), shard, ONE_OF(seed, "layer", "stage"),
      by_microbatch ? "microbatch" : "step", ONE_OF(seed, "2", "4", "4", "8"));
}

static const char *sharing_text(uint64_t *seed) {
  if (has_experts) return expert_sharing_text(seed);
  const char *shard = ONE_OF(seed, "none", "optimizer", "gradients", "weights", "weights");
  const unsigned replicas = draw(seed, 10) ? 2 + (unsigned)draw(seed, 3) : 1;
  const bool by_unit = draw(seed, 3) != 0,
             by_microbatch = !strcmp(shard, "gradients") || draw(seed, 3);
  unsigned shard_ranks = 1 + (unsigned)draw(seed, replicas);
  while (replicas % shard_ranks) shard_ranks++;
  return pen_text(
      "data_parallel = { replicas = %u; shard = \"%s\"; unit = \"%s\"; reduce = \"%s\"; "
      "shard_ranks = %u; };\n",
      replicas, shard, by_unit ? "layer" : "stage", by_microbatch ? "microbatch" : "step",
      shard_ranks);
}

static bool splits_weights, has_members, shares_tokens;

void split_weights_of_plans(void) { splits_weights = true; }
void share_splits_of_plans(void) { splits_weights = has_members = true; }
void share_tokens_of_plans(void) { splits_weights = has_members = shares_tokens = true; }

static const char *splits_text(uint64_t *seed) {
  if (!splits_weights) return "";
  if (!has_members)
    return ONE_OF(seed, "tensor_parallel = { splits = 2; };\n",
                  "tensor_parallel = { splits = 4; };\n");
  return pen_text("tensor_parallel = { %s sequence = %s; };\n",
                  ONE_OF(seed, "ranks = 2;", "ranks = 2; splits = 4;", "ranks = 4;"),
                  shares_tokens || draw(seed, 2) ? "true" : "false");
}

static const char *split_model_text(uint64_t *seed) {
  const char *family = ONE_OF(seed, "llama", "qwen3", "gpt2", "qwen2", "mistral", "gemma3_text"),
             *frozen = !strcmp(family, "gpt2")
                           ? ONE_OF(seed, "", "frozen = [\"ln_1.bias\", \"c_fc.weight\"];")
                           : ONE_OF(seed, "", "", "frozen = [\"norm.weight\", \"up_proj.weight\"];",
                                    "frozen = [\"embed_tokens.weight\"];"),
             *window =
                 !strcmp(family, "mistral") || !strcmp(family, "gemma3_text") ? "window = 4; " : "";
  return pen_text("family = \"%s\"; kv_heads = 4; %stie_embeddings = %s; sequence = %s; %s", family,
                  window, ONE_OF(seed, "false", "true"),
                  ONE_OF(seed, "8", "8", "64; loss_rows = 32"), frozen);
}

static const char *expert_model_text(uint64_t *seed) {
  return pen_text(
      "%s kv_heads = 2; experts = 4; experts_per_token = %s; moe_ffn = 64; sequence = 8; %s",
      ONE_OF(seed, "family = \"qwen3_moe\";", "family = \"dots1\"; bias_update = 0.01;"),
      ONE_OF(seed, "1", "2", "3"),
      ONE_OF(seed, "", "", "frozen = [\"up_proj.weight\"];",
             "router_normalize = true; tie_embeddings = true;", "aux_loss = 0.1; z_loss = 0.01;",
             "aux_loss = 0.1; aux_scope = \"microbatch\";", "aux_loss = 0.1; aux_scope = \"step\";",
             "aux_loss = 0.1; aux_scope = \"step\"; z_loss = 0.1;"));
}

/* What the families have beside the settings of all: tied and frozen weights, a loss in chunks. */
static const char *model_text(uint64_t *seed) {
  if (has_experts) return expert_model_text(seed);
  const bool chunks = draw(seed, 3) == 0;
  const char *family = ONE_OF(seed, "llama", "llama", "gpt2", "mlp"), *frozen = "";
  if (!strcmp(family, "mlp"))
    return pen_text("family = \"mlp\"; sequence = 8; %s",
                    ONE_OF(seed, "", "frozen = [\"w2.weight\"];", "frozen = [\"0.w1.weight\"];"));
  if (!strcmp(family, "llama"))
    frozen = ONE_OF(seed, "", "", "frozen = [\"norm.weight\", \"up_proj.weight\"];",
                    "frozen = [\"embed_tokens.weight\"];");
  else
    frozen = ONE_OF(seed, "", "", "frozen = [\"ln_1.bias\", \"c_fc.weight\"];",
                    "frozen = [\"wpe.weight\"];");
  return pen_text("family = \"%s\"; kv_heads = %s; %ssequence = %s; %s", family,
                  strcmp(family, "llama") ? "4" : "2",
                  draw(seed, 2) ? "tie_embeddings = true; " : "",
                  chunks ? "64; loss_rows = 32" : "8", frozen);
}

/* Tensors have several blocks of PEN_NORM_BLOCK elements, so that each replica has a shard. The
 * last of 4 splits of the vocabulary has fewer rows. */
static const char *random_text(uint64_t *seed) {
  const size_t which = draw(seed, sizeof schedules / sizeof *schedules);
  const unsigned ranks = schedules[which].even ? 2 : 1 + (unsigned)draw(seed, 3),
                 stages = schedules[which].stages,
                 layers = ranks * stages + (unsigned)draw(seed, 3);
  return pen_text(
      "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\"; };\n"
      "model = { layers = %u; hidden = 128; heads = 4; ffn = 192; vocab = %d; dtype = \"%s\"; "
      "%s };\n"
      "batch = { microbatch = 1; };\n"
      "optimizer = { learning_rate = 1e-3; steps = 10; clip_norm = %s; };\n"
      "cluster = { device = \"%s\"; };\nmemory = { recompute = \"%s\"; };\n%s%s",
      ranks, stages, ranks * (2 + (unsigned)draw(seed, 2)), schedules[which].name, layers,
      has_members      ? 157
      : splits_weights ? 158
                       : 160,
      draw(seed, 2) ? "bf16" : "f32", splits_weights ? split_model_text(seed) : model_text(seed),
      draw(seed, 2) ? "0" : "1.0", splits_weights || has_experts || draw(seed, 8) ? "cpu" : "cuda",
      ONE_OF(seed, "none", "full", "layer", "attention"), sharing_text(seed), splits_text(seed));
}

/* ---- parts ---- */

void turn_to_rank(struct broken_plan *p, uint32_t rank) {
  p->rank = rank;
  p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[rank]);
  p->action = WRITABLE(struct pen_action, p->tables->actions);
}

struct pen_program *program_of(const struct broken_plan *p, uint32_t op) {
  for (uint32_t n = 0; n < p->tables->program_count; n++) {
    const struct pen_program *program = &p->tables->programs[n];
    if (op >= program->first_op && op < program->first_op + program->op_count)
      return WRITABLE(struct pen_program, program);
  }
  fail_msg("op %u is in no program", op);
  return NULL;
}

static uint32_t past_of(const struct broken_plan *p, uint32_t op) {
  const struct pen_program *program = program_of(p, op);
  return program->first_op + program->op_count;
}

uint32_t op_of_kind(struct broken_plan *p, int kind) {
  uint32_t found = PEN_NONE, seen = 0;
  for (uint32_t n = 0; n < p->tables->program_count; n++)
    for (uint32_t i = 0; i < p->tables->programs[n].op_count; i++) {
      uint32_t op = p->tables->programs[n].first_op + i;
      if (p->tables->ops[op].kind == kind && draw(p->seed, ++seen) == 0) found = op;
    }
  return found;
}

uint32_t next_of_kind(const struct broken_plan *p, uint32_t op, int kind) {
  for (uint32_t past = past_of(p, op); op < past; op++)
    if (p->tables->ops[op].kind == kind) return op;
  return PEN_NONE;
}

uint32_t last_before(const struct broken_plan *p, uint32_t op, int kind) {
  for (uint32_t first = program_of(p, op)->first_op; op-- > first;)
    if (p->tables->ops[op].kind == kind) return op;
  return PEN_NONE;
}

bool is_last_of(const struct broken_plan *p, uint32_t op, int other) {
  return op + 1 >= past_of(p, op) || next_of_kind(p, op + 1, other) == PEN_NONE;
}

int accumulated_operand(const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (int k = 0; k < signature->operand_count; k++)
    if (signature->operand[k].accumulates && op->operand[k] != PEN_NONE) return k;
  return -1;
}

/* What an op does with a tensor. */
enum access { READS, WRITES, ADDS };

static bool accesses(const struct pen_op *op, uint32_t tensor, enum access wanted) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (int k = 0; k < signature->operand_count; k++) {
    enum access access = k < signature->input_count          ? READS
                         : signature->operand[k].accumulates ? ADDS
                                                             : WRITES;
    if (op->operand[k] == tensor && access == wanted) return true;
  }
  return false;
}

static uint32_t find_access(const struct broken_plan *p, uint32_t from, uint32_t tensor,
                            enum access access) {
  for (uint32_t past = past_of(p, from); from < past; from++)
    if (accesses(&p->tables->ops[from], tensor, access)) return from;
  return PEN_NONE;
}

uint32_t writer_of(const struct broken_plan *p, uint32_t from, uint32_t tensor) {
  return find_access(p, from, tensor, WRITES);
}
uint32_t adder_of(const struct broken_plan *p, uint32_t from, uint32_t tensor) {
  return find_access(p, from, tensor, ADDS);
}
uint32_t reader_of(const struct broken_plan *p, uint32_t from, uint32_t tensor) {
  return find_access(p, from, tensor, READS);
}

static const char *ending_of(const char *name) {
  const char *bracket = strrchr(name, '('), *point = strrchr(name, '.');
  return bracket ? bracket : point ? point : name;
}

uint32_t tensor_like(struct broken_plan *p, uint32_t tensor) {
  const struct pen_tensor *tensors = p->tables->tensors, *t = &tensors[tensor];
  uint32_t found = PEN_NONE, seen = 0;
  for (uint32_t n = 0; n < p->tables->tensor_count; n++)
    if (n != tensor && tensors[n].base == t->base && tensors[n].dtype == t->dtype &&
        tensors[n].bytes == t->bytes && !strcmp(ending_of(tensors[n].name), ending_of(t->name)) &&
        draw(p->seed, ++seen) == 0)
      found = n;
  return found;
}

/* ---- ops ---- */

/* Moves the ops after `op` by one place, up or down. */
static void resize_ops(struct broken_plan *p, uint32_t op, int more) {
  program_of(p, op)->op_count += (uint32_t)more;
  for (uint32_t n = 0; n < p->tables->program_count; n++)
    if (p->tables->programs[n].first_op > op)
      WRITABLE(struct pen_program, p->tables->programs)[n].first_op += (uint32_t)more;
  if (p->tables->start_first_op > op) p->tables->start_first_op += (uint32_t)more;
}

void drop_op(struct broken_plan *p, uint32_t op) {
  resize_ops(p, op, -1);
  memmove(ops_of(p) + op, ops_of(p) + op + 1, (--p->tables->op_count - op) * sizeof(struct pen_op));
}

void double_op(struct broken_plan *p, uint32_t op) {
  struct pen_op *grown = pen_new(p->tables->op_count + 1, sizeof *grown);
  resize_ops(p, op, 1);
  memcpy(grown, p->tables->ops, (op + 1) * sizeof *grown);
  memcpy(grown + op + 1, p->tables->ops + op, (p->tables->op_count++ - op) * sizeof *grown);
  p->tables->ops = grown;
}

void move_op(struct broken_plan *p, uint32_t from, uint32_t to) {
  struct pen_op *ops = ops_of(p), moved = ops[from];
  if (from < to)
    memmove(ops + from, ops + from + 1, (to - from) * sizeof moved);
  else
    memmove(ops + to + 1, ops + to, (from - to) * sizeof moved);
  ops[to] = moved;
}

/* [action]: collectives up to its end. */
static uint32_t *count_collectives(const struct broken_plan *p) {
  uint32_t *ended = pen_new(p->tables->action_count + 1u, sizeof *ended), count = 0;
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    ended[row] = count += pen_kind_is_collective(p->action[row].kind)
                              ? 1
                              : pen_collectives_within(p->tables, &p->action[row]);
  return ended;
}

struct pen_collective *op_row(const struct broken_plan *p, const struct pen_op *op) {
  return &WRITABLE(struct pen_collective, p->tables->collectives)[op->collective];
}

static void renumber_waits(struct broken_plan *p, const struct pen_program *program) {
  struct pen_op *op = ops_of(p) + program->first_op;
  uint32_t signals = 0;
  for (uint32_t i = 0; i < program->op_count; i++) {
    signals += op[i].kind == PEN_OP_SIGNAL_PEERS;
    if (op[i].kind == PEN_OP_WAIT_PEERS) op_row(p, &op[i])->awaited = signals;
  }
}

void drop_signal_and_renumber(struct broken_plan *p, uint32_t op) {
  struct pen_program *program = program_of(p, op);
  uint32_t *before = count_collectives(p);
  drop_op(p, op);
  renumber_waits(p, program);
  uint32_t *after = count_collectives(p);
  for (uint32_t row = 0; row < p->tables->action_count; row++) {
    struct pen_action *action = &p->action[row];
    uint32_t awaited = action->awaited_collective, at = 0;
    if (awaited == 0) continue;
    while (before[at] < awaited) at++;
    bool within = action->kind <= PEN_W;
    action->awaited_collective =
        within && !pen_collectives_within(p->tables, action) ? 0 : after[at];
  }
}

/* ---- actions ---- */

void drop_action(struct broken_plan *p, uint32_t row) {
  memmove(p->action + row, p->action + row + 1,
          (--p->tables->action_count - row) * sizeof *p->action);
}

void double_action(struct broken_plan *p, uint32_t row) {
  struct pen_action *grown = pen_new(p->tables->action_count + 1, sizeof *grown);
  memcpy(grown, p->action, (row + 1) * sizeof *grown);
  memcpy(grown + row + 1, p->action + row, (p->tables->action_count++ - row) * sizeof *grown);
  p->tables->actions = p->action = grown;
}

void move_action(struct broken_plan *p, uint32_t from, uint32_t to) {
  struct pen_action row = p->action[from];
  if (from < to)
    memmove(p->action + from, p->action + from + 1, (to - from) * sizeof row);
  else
    memmove(p->action + to + 1, p->action + to, (from - to) * sizeof row);
  p->action[to] = row;
}

uint32_t first_row(const struct broken_plan *p, int kind) {
  for (uint32_t row = 0; row < p->tables->action_count; row++)
    if (p->action[row].kind == kind) return row;
  return PEN_NONE;
}

uint32_t last_compute_row(const struct broken_plan *p) {
  uint32_t row = p->tables->action_count;
  while (row-- > 0)
    if (p->action[row].kind <= PEN_W) return row;
  return PEN_NONE;
}

/* ---- the runner ---- */

enum { INSTANCES = 250, TRIES_OF_A_PLAN = 4, PLANS_MAX = 4000 };

struct rejection {
  uint64_t seed;
  bool accepted;
  int defect; /* -1: none applied */
  struct pen_problem problem;
};

/* Changes a plan by the first defect that applies, from a random one on. Three changes of four are
 * to the train profile. */
static void change_plan(const struct defect_kind *kind, struct pen_plan *plan,
                        struct rejection *outcome) {
  const size_t first = draw(&outcome->seed, kind->count);
  struct broken_plan p = {.plan = plan, .seed = &outcome->seed};
  p.profile = WRITABLE(struct pen_profile,
                       &plan->profiles[draw(&outcome->seed, 4) == 0 && plan->profile_count > 1]);
  turn_to_rank(&p, (uint32_t)draw(&outcome->seed, plan->rank_count));
  for (size_t n = 0; n < kind->count && outcome->defect < 0; n++)
    if (kind->defect[(first + n) % kind->count].apply(&p))
      outcome->defect = (int)((first + n) % kind->count);
  if (outcome->defect >= 0) outcome->accepted = pen_verify(plan, &outcome->problem);
}

static bool says_so(const struct defect *defect, const char *reason) {
  for (size_t n = 0; n < sizeof defect->reasons / sizeof *defect->reasons; n++)
    if (defect->reasons[n] && strstr(reason, defect->reasons[n])) return true;
  return false;
}

/* One instance in a child; returns the defect that was applied, or -1. */
static int reject_one(const struct defect_kind *kind, struct pen_plan *plan, const char *text,
                      uint64_t *seed, struct rejection *outcome) {
  *outcome = (struct rejection){
      .seed = *seed, .defect = -1, .problem = {.rank = PEN_NONE, .action = PEN_NONE}};
  if (in_child()) {
    change_plan(kind, plan, outcome);
    _exit(0);
  }
  int status = await_child();
  if (outcome->defect < 0 && status == 0) return -1;
  const struct defect *defect = &kind->defect[outcome->defect < 0 ? 0 : outcome->defect];
  if (status != 0 || outcome->accepted || !says_so(defect, outcome->problem.reason)) {
    print_message("%s%s: %s, seed %lu, rank %u, action %u: %s, status %#x\n", text, kind->name,
                  defect->name, (unsigned long)*seed, outcome->problem.rank,
                  outcome->problem.action, outcome->accepted ? "accepted" : outcome->problem.reason,
                  (unsigned)status);
    if (!getenv("PEN_BREAK_ALL")) fail();
  }
  return outcome->defect;
}

static struct pen_plan *next_plan(const char **text, uint64_t *seed) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  *text = random_text(seed);
  struct pen_plan *plan = make_plan(*text);
  if (!pen_verify(plan, &problem))
    fail_msg("%sunchanged, rank %u, action %u: %s", *text, problem.rank, problem.action,
             problem.reason);
  return plan;
}

/* Applies `instances` changes of each kind, or PEN_BREAK_INSTANCES; all must be rejected with their
 * message, and every plan accepted before it is changed. Every defect must occur. */
static void reject_kinds(const struct defect_kind *kinds, size_t count, unsigned instances,
                         uint64_t seed) {
  const char *given = getenv("PEN_BREAK_INSTANCES"), *text;
  unsigned(*applied)[DEFECTS_MAX + 1] = calloc(count, sizeof *applied), plans = 0;
  struct rejection *outcome = shared_memory(sizeof *outcome);
  if (given) instances = (unsigned)strtoul(given, NULL, 10);
  for (bool more = true; more; plans++) {
    struct pen_plan *plan = next_plan(&text, &seed);
    more = false;
    for (size_t k = 0; k < count; k++)
      for (int tries = 0; tries < TRIES_OF_A_PLAN && applied[k][DEFECTS_MAX] < instances; tries++) {
        int defect = reject_one(&kinds[k], plan, text, &seed, outcome);
        seed = outcome->seed;
        more = true;
        if (defect < 0) break;
        applied[k][defect]++;
        applied[k][DEFECTS_MAX]++;
      }
    pen_free_all();
    if (plans > PLANS_MAX) fail_msg("%u plans do not suffice", plans);
  }
  for (size_t k = 0; k < count; k++) {
    print_message("# %s: %u rejected\n", kinds[k].name, applied[k][DEFECTS_MAX]);
    for (size_t n = 0; n < kinds[k].count; n++) {
      if (kinds[k].count > 1) print_message("#   %u %s\n", applied[k][n], kinds[k].defect[n].name);
      if (applied[k][n] == 0) fail_msg("%s was never applied", kinds[k].defect[n].name);
    }
  }
  print_message("# %u plans\n", plans);
  free(applied);
}

/* What a test program rejects. */
struct kinds_of_test {
  const struct defect_kind *kinds;
  size_t count;
  uint64_t seed;
};

static void defects_are_rejected(void **state) {
  const struct kinds_of_test *test = *state;
  reject_kinds(test->kinds, test->count, INSTANCES, test->seed);
}

int main_of_kinds(const struct defect_kind *kinds, size_t count, uint64_t seed) {
  struct kinds_of_test test = {kinds, count, seed};
  const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(defects_are_rejected, &test)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}

int main_of_defects(const struct defect *defects, size_t count, uint64_t seed) {
  struct defect_kind *kinds = calloc(count, sizeof *kinds);
  for (size_t n = 0; n < count; n++)
    kinds[n] = (struct defect_kind){defects[n].name, &defects[n], 1};
  int status = main_of_kinds(kinds, count, seed);
  free(kinds);
  return status;
}
