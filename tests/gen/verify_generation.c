/* verify_generation.c: the verifier proves that generation computes the logits of evaluation, for
 * all families, over a cache and without, and rejects profiles of generation that compute others,
 * each by itself a plan without a fault. */
#include <string.h>

#include "gen/topology/topology.h"
#include "tests/support/broken.h"

static uint64_t seed = 11;

/* Models of two layers a rank; a window of generation is shorter than the sequence. */
static const char *const models[] = {
    "family = \"llama\"; kv_heads = 4;",
    "family = \"llama\"; kv_heads = 2; dtype = \"bf16\"; tie_embeddings = true;",
    "family = \"llama\"; kv_heads = 4; loss_rows = 32;",
    "family = \"gpt2\";",
    "family = \"qwen2\"; kv_heads = 2;",
    "family = \"qwen3\"; kv_heads = 4;",
    "family = \"mistral\"; kv_heads = 4; window = 100;",
    "family = \"gemma3_text\"; kv_heads = 2; window = 20;",
};
enum { MODELS = sizeof models / sizeof *models };

static const char *const more[] = {
    "",
    "generate = { prompts = 3; };\n",
    "generate = { prompts = 0; };\n",
    "tensor_parallel = { splits = 2; };\n",
    "data_parallel = { replicas = 2; shard = \"weights\"; unit = \"layer\"; };\n",
    "memory = { recompute = \"layer\"; };\n",
};
enum { MORE = sizeof more / sizeof *more };

static struct pen_plan *plan_of(size_t model, size_t extra, unsigned ranks, const char *device) {
  return make_plan(pen_text(
      "pipeline = { ranks = %u; microbatches = 4; schedule = \"1f1b\"; };\n"
      "model = { %s layers = %u; hidden = 32; heads = 4; ffn = 48; vocab = 64; sequence = 256; };\n"
      "batch = { microbatch = 2; };\noptimizer = { learning_rate = 1e-3; steps = 10; };\n"
      "cluster = { device = \"%s\"; };\n%s",
      ranks, models[model], 2 * ranks, device, more[extra]));
}

/* ---- changes ---- */

/* A random profile of generation, and a rank. */
static bool pick_profile(struct broken_plan *p) {
  uint32_t seen = 0;
  p->profile = NULL;
  for (uint32_t i = 0; i < p->plan->profile_count; i++) {
    const int kind = (int)p->plan->profiles[i].kind;
    if (pen_profile_kind_generates(kind) && draw(p->seed, ++seen) == 0)
      p->profile = WRITABLE(struct pen_profile, &p->plan->profiles[i]);
  }
  if (!p->profile) return false;
  p->rank = (uint32_t)draw(p->seed, p->plan->rank_count);
  p->tables = WRITABLE(struct pen_rank_program, &p->profile->ranks[p->rank]);
  return true;
}

/* Whether an op reads or writes an operand of that name. */
static int operand_of(const struct pen_op *op, const char *name) {
  const int k = pen_signature_operand(pen_signature_of(op->kind), name);
  return k >= 0 && op->operand[k] != PEN_NONE ? k : -1;
}

/* A random op of the program, not `other`, with such an operand and of one of the kinds; null:
 * there is none. `kind` ends with -1. */
static struct pen_op *pick_op(struct broken_plan *p, const int *kind, const char *operand,
                              const struct pen_op *other) {
  uint32_t seen = 0;
  struct pen_op *op = NULL;
  for (uint32_t i = 0; i < p->tables->op_count; i++) {
    struct pen_op *one = &ops_of(p)[i];
    bool wanted = one != other && operand_of(one, operand) >= 0;
    bool is_kind = kind == NULL;
    for (int n = 0; kind != NULL && kind[n] >= 0; n++) is_kind = is_kind || one->kind == kind[n];
    if (wanted && is_kind && draw(p->seed, ++seen) == 0) op = one;
  }
  return op;
}

static const int products[] = {PEN_OP_LINEAR, PEN_OP_AFFINE, PEN_OP_AFFINE_ROWS, -1},
                 norms[] = {PEN_OP_RMSNORM, PEN_OP_LAYERNORM, -1},
                 attentions[] = {PEN_OP_ATTENTION, PEN_OP_ATTENTION_CACHED, PEN_OP_ATTENTION_QKV,
                                 PEN_OP_ATTENTION_CACHED_QKV, -1},
                 ropes[] = {PEN_OP_ROPE, PEN_OP_ROPE_QKV, -1},
                 selects[] = {PEN_OP_INDEX_SELECT, -1}, last_tokens[] = {PEN_OP_LAST_TOKENS, -1};

/* An op of the kinds takes the operand of another one, which is another tensor of its size. */
static bool takes_anothers_operand(struct broken_plan *p, const int *kind, const char *name) {
  struct pen_op *op = pick_op(p, kind, name, NULL), *other = op ? pick_op(p, kind, name, op) : NULL;
  if (!other || op->kind != other->kind || memcmp(op->dim, other->dim, sizeof op->dim) != 0)
    return false;
  const int k = operand_of(op, name);
  if (op->operand[k] == other->operand[k]) return false;
  op->operand[k] = other->operand[k];
  return true;
}

static bool another_matrix(struct broken_plan *p) {
  return takes_anothers_operand(p, products, "w");
}
static bool another_gain(struct broken_plan *p) { return takes_anothers_operand(p, norms, "gain"); }

static bool exchanges(struct broken_plan *p, const int *kind, const char *one, const char *other) {
  struct pen_op *op = pick_op(p, kind, one, NULL);
  if (!op) return false;
  uint32_t *a = &op->operand[operand_of(op, one)], *b = &op->operand[operand_of(op, other)];
  const uint32_t tensor = *a;
  if (p->tables->tensors[*a].bytes != p->tables->tensors[*b].bytes) return false;
  *a = *b;
  *b = tensor;
  return true;
}

static bool gate_and_up_exchanged(struct broken_plan *p) {
  return exchanges(p, NULL, "gate", "up");
}
static bool queries_and_keys_exchanged(struct broken_plan *p) {
  return exchanges(p, attentions, "q", "k");
}
static bool keys_and_values_exchanged(struct broken_plan *p) {
  return exchanges(p, attentions, "k", "v");
}

static bool another_epsilon(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, norms, "x", NULL);
  if (!op) return false;
  op->real[pen_signature_real(pen_signature_of(op->kind), "epsilon")] *= 2;
  return true;
}

static bool another_window(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, attentions, "o", NULL);
  if (!op) return false;
  op->dim[pen_signature_dim(pen_signature_of(op->kind), "window")]--;
  return true;
}

static bool no_residual(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, products, "a", NULL);
  if (!op) return false;
  op->operand[operand_of(op, "a")] = PEN_NONE;
  return true;
}

/* A product reads what a norm has read, in place of what it has made. */
static bool no_norm(struct broken_plan *p) {
  const struct pen_op *norm = pick_op(p, norms, "x", NULL);
  struct pen_op *reader = norm ? pick_op(p, products, "x", NULL) : NULL;
  if (!reader || reader->operand[operand_of(reader, "x")] != norm->operand[operand_of(norm, "y")])
    return false;
  reader->operand[operand_of(reader, "x")] = norm->operand[operand_of(norm, "x")];
  return true;
}

static bool no_positions(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, ropes, "starts", NULL);
  if (!op || p->profile->kind != PEN_CACHED) return false;
  op->operand[operand_of(op, "starts")] = PEN_NONE;
  return true;
}

/* The head gets a row of another value of as many bytes, or by other numbers than those of the last
 * tokens. */
static bool another_row(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, selects, "x", NULL), *other = pick_op(p, norms, "x", NULL);
  if (!op || !other) return false;
  uint32_t *x = &op->operand[operand_of(op, "x")];
  const uint32_t wrong = other->operand[operand_of(other, draw(p->seed, 2) ? "x" : "y")];
  if (*x == wrong || p->tables->tensors[*x].bytes != p->tables->tensors[wrong].bytes) return false;
  *x = wrong;
  return true;
}

static bool rows_by_targets(struct broken_plan *p) {
  struct pen_op *op = pick_op(p, selects, "index", NULL),
                *made = op ? pick_op(p, last_tokens, "index", NULL) : NULL;
  if (!made) return false;
  op->operand[operand_of(op, "index")] = made->operand[operand_of(made, "targets")];
  return true;
}

/* What may find it before: bytes that the op's program does not keep so long, splits of weights,
 * weights that are gathered. */
#define BYTES                                                                                \
  "has overwritten", "in the same bytes", "which nothing", "its bytes hold", "not complete", \
      "overlap", "not have been gathered"

static const struct defect defects[] = {
    {"another matrix", another_matrix, {"generated: ", "whole: ", BYTES}},
    {"another gain", another_gain, {"generated: ", BYTES}},
    {"gate and up exchanged", gate_and_up_exchanged, {"generated: "}},
    {"queries and keys exchanged", queries_and_keys_exchanged, {"generated: "}},
    {"keys and values exchanged", keys_and_values_exchanged, {"generated: "}},
    {"another epsilon", another_epsilon, {"generated: "}},
    {"another window", another_window, {"generated: ", "different caches"}},
    {"a residual left out", no_residual, {"generated: "}},
    {"a norm left out", no_norm, {"generated: ", "whole: ", BYTES}},
    {"positions left out", no_positions, {"generated: "}},
    {"the row of another value", another_row, {"generated: ", "whole: ", BYTES}},
    {"a row by other numbers", rows_by_targets, {"generated: ", "whole: ", BYTES}},
};

/* Whether the rule itself has found it. */
static bool check_reason(const struct defect *defect, const char *reason) {
  bool expected = false;
  for (int r = 0; r < REASONS_MAX && defect->reasons[r]; r++)
    expected = expected || strstr(reason, defect->reasons[r]);
  if (!expected) fail_msg("%s: %s", defect->name, reason);
  return strstr(reason, "generated: ") != NULL;
}

static void other_logits_are_rejected(void **state) {
  (void)state;
  enum { ROUNDS = 60 };
  for (size_t d = 0; d < sizeof defects / sizeof *defects; d++) {
    int found = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
      struct pen_plan *plan = plan_of(draw(&seed, MODELS), draw(&seed, MORE),
                                      1 + (unsigned)draw(&seed, 2), round % 2 ? "cuda" : "cpu");
      struct broken_plan p = {.plan = plan, .seed = &seed};
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      if (pick_profile(&p) && defects[d].apply(&p)) {
        if (pen_verify(plan, &problem))
          fail_msg("%s: accepted in %s, rank %u", defects[d].name, p.profile->name, p.rank);
        found += check_reason(&defects[d], problem.reason);
      }
      pen_free_all();
    }
    if (found == 0) fail_msg("%s: never found by the rule", defects[d].name);
    print_message("# %s: %d of %d\n", defects[d].name, found, ROUNDS);
  }
}

/* A plan whose profiles all have attention to later tokens in place of the causal one: only the
 * rows of generation are others then. */
static void later_tokens_are_rejected(void **state) {
  (void)state;
  struct pen_plan *plan = plan_of(0, 2, 1, "cpu");
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  for (uint32_t i = 0; i < plan->profile_count; i++) {
    struct pen_rank_program *tables = WRITABLE(struct pen_rank_program, plan->profiles[i].ranks);
    for (uint32_t n = 0; n < tables->op_count; n++) {
      struct pen_op *op = WRITABLE(struct pen_op, &tables->ops[n]);
      if (op->kind == PEN_OP_ATTENTION) op->kind = PEN_OP_ATTENTION_FULL;
      if (op->kind == PEN_OP_ATTENTION_DX) op->kind = PEN_OP_ATTENTION_FULL_DX;
    }
  }
  assert_false(pen_verify(plan, &problem));
  if (!strstr(problem.reason, "generated: ") || !strstr(problem.reason, "has ATTENTION_FULL, of"))
    fail_msg("%s", problem.reason);
  pen_free_all();
}

static void what_the_generator_makes_is_accepted(void **state) {
  (void)state;
  for (size_t model = 0; model < MODELS; model++)
    for (size_t extra = 0; extra < MORE; extra++)
      for (unsigned n = 0; n < 3; n++) {
        struct pen_problem problem;
        if (!pen_verify(plan_of(model, extra, 1 + n % 2, n < 2 ? "cpu" : "cuda"), &problem))
          fail_msg("%s, %s: %s", models[model], more[extra], problem.reason);
        pen_free_all();
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_the_generator_makes_is_accepted),
      cmocka_unit_test(other_logits_are_rejected),
      cmocka_unit_test(later_tokens_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
