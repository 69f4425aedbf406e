/* verify_fused.c: which products a plan for CUDA makes one, how many launches a layer has then, and
 * that the verifier rejects plans whose fused products have wrong operands, weights that are not
 * one after the other, or columns that are others. */
#include "gen/verify/verify.h"
#include "tests/support/op_changes.h"

/* ---- what the generator makes ---- */

/* Of the first rank, in training. */
static const struct pen_rank_program *tables_of(const struct pen_plan *plan) {
  return &plan->profiles[0].ranks[0];
}

static uint32_t ops_of_kind(const struct pen_plan *plan, int kind) {
  uint32_t count = 0;
  for (uint32_t op = 0; op < tables_of(plan)->op_count; op++)
    count += tables_of(plan)->ops[op].kind == kind;
  return count;
}

enum { SETTINGS_MAX = 3 };

/* A plan for CUDA, of stages on one rank, with settings. */
static struct pen_plan *plan_with(const char *family, uint32_t stages,
                                  const char *const settings[SETTINGS_MAX]) {
  size_t count = 0;
  while (count < SETTINGS_MAX && settings[count]) count++;
  return make_whole_of(read_topology_with(topology_text(family, "1f1b", 1, stages, 2, "/* cuda */"),
                                          settings, count))
      .plan;
}

static void assert_valid(const struct pen_plan *plan, const char *name) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  if (!pen_verify(plan, &problem)) fail_msg("%s: %s", name, problem.reason);
}

/* Whether one layer has one product of q, k and v, and one of gate and up. */
static void products_of_one_value_are_one(void **state) {
  (void)state;
  static const struct {
    const char *family, *settings[SETTINGS_MAX];
    uint32_t attentions, units;
  } cases[] = {
      {"llama", {0}, 1, 1},
      {"mistral", {"model.window=5", "model.dtype=bf16"}, 1, 1},
      {"qwen2", {0}, 0, 1},                      /* biases come between */
      {"qwen3", {0}, 0, 1},                      /* norms of heads do */
      {"gemma3_text", {"model.window=5"}, 0, 1}, /* likewise */
      {"llama", {"model.frozen=[\"q_proj.weight\"]"}, 0, 1},
      {"llama", {"model.frozen=[\"q_proj.weight\",\"k_proj.weight\",\"v_proj.weight\"]"}, 1, 1},
      {"llama", {"model.hidden=12", "model.head_dim=8", "model.ffn=7"}, 1, 0}, /* 84 elements */
      {"llama", {"tensor_parallel.splits=2"}, 0, 0},
      {"mlp", {0}, 0, 0},
      {"llama", {"cluster.device=cpu"}, 0, 0},
  };
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct pen_plan *plan = plan_with(cases[n].family, 1, cases[n].settings);
    const char *name = pen_text("case %zu, %s", n, cases[n].family);
    assert_valid(plan, name);
    const uint32_t attentions = ops_of_kind(plan, PEN_OP_ATTENTION_QKV),
                   products = ops_of_kind(plan, PEN_OP_LINEAR_FUSED);
    uint32_t units = 0;
#define PEN_FUSED(kind, fused, products, name, rotates) \
  units += rotates ? 0 : ops_of_kind(plan, PEN_OP_##fused);
#include "kernels/ops.def"
    if (attentions != cases[n].attentions || units != cases[n].units ||
        products != attentions + units)
      fail_msg("%s: %u attentions, %u units of %u products", name, attentions, units, products);
    pen_free_all();
  }
}

/* The kernels that ops of F and B enqueue. */
static uint32_t launches(const struct pen_plan *plan) {
  static const uint8_t several[PEN_OP_COUNT] = {
      [PEN_OP_ATTENTION_DX] = 3, [PEN_OP_ATTENTION_QKV_DX] = 3, [PEN_OP_RMSNORM_DX] = 2};
  const struct pen_rank_program *tables = tables_of(plan);
  uint32_t count = 0;
  for (uint32_t i = 0; i < tables->program_count; i++)
    for (uint32_t op = 0; op < tables->programs[i].op_count; op++) {
      const int kind = tables->ops[tables->programs[i].first_op + op].kind;
      count += several[kind] ? several[kind] : 1;
    }
  return count;
}

static void a_layer_has_few_launches(void **state) {
  (void)state;
  static const char *const bf16[SETTINGS_MAX] = {"model.dtype=bf16"};
  const uint32_t one = launches(plan_with("llama", 1, bf16)),
                 two = launches(plan_with("llama", 2, bf16));
  assert_int_equal(two - one, 28);
  pen_free_all();
}

/* ---- what the verifier rejects ---- */

/* The first op of that kind; of products, of three weights. */
static struct pen_op *first_op(struct broken_plan *p, int kind) {
  const struct pen_signature *signature = pen_signature_of(kind);
  const int third = pen_signature_dim(signature, "third");
  turn_to_training(p, 0);
  struct pen_op *op = ops_of(p);
  while (op->kind != kind || (third >= 0 && op->dim[third] == 0)) op++;
  return op;
}

static uint32_t *operand_of(struct broken_plan *p, int kind, const char *operand) {
  struct pen_op *op = first_op(p, kind);
  return &op->operand[operand_named(op, operand)];
}

static int64_t *dim_of(struct broken_plan *p, int kind, const char *dim) {
  return &first_op(p, kind)->dim[pen_signature_dim(pen_signature_of(kind), dim)];
}

static bool exchange(struct broken_plan *p, int kind, const char *one, const char *other) {
  uint32_t *a = operand_of(p, kind, one), *b = operand_of(p, kind, other), kept = *a;
  *a = *b;
  *b = kept;
  return true;
}

static bool keys_for_values(struct broken_plan *p) {
  return exchange(p, PEN_OP_LINEAR_FUSED, "w1", "w2");
}

static bool gradients_exchanged(struct broken_plan *p) {
  return exchange(p, PEN_OP_LINEAR_FUSED_DW, "dw1", "dw2");
}

static bool weight_left_out(struct broken_plan *p) {
  *operand_of(p, PEN_OP_LINEAR_FUSED, "w2") = PEN_NONE;
  return true;
}

static bool weight_of_none(struct broken_plan *p) {
  int64_t *second = dim_of(p, PEN_OP_LINEAR_FUSED_DX, "second"),
          *third = dim_of(p, PEN_OP_LINEAR_FUSED_DX, "third");
  *second += *third;
  *third = 0;
  return true;
}

static bool keys_of_another_layer(struct broken_plan *p) {
  struct pen_op *op = first_op(p, PEN_OP_LINEAR_FUSED), *other = ops_of(p) + p->tables->op_count;
  do other--;
  while (other->kind != op->kind || other->operand[3] == PEN_NONE ||
         other->operand[2] == op->operand[2]);
  op->operand[2] = other->operand[2];
  return true;
}

static void exchange_offsets(uint64_t *a, uint64_t *b) {
  const uint64_t kept = *a;
  *a = *b;
  *b = kept;
}

static struct pen_weight *weight_of(struct broken_plan *p, const char *tensor) {
  struct pen_weight *weight = WRITABLE(struct pen_weight, p->plan->weights);
  while (strncmp(tensor, weight->name, strlen(weight->name)) != 0) weight++;
  return weight;
}

/* k and v change places in the arena, and in all tables that have their offsets: every address is
 * right, but for the product of both. */
static bool weights_change_places(struct broken_plan *p) {
  const struct pen_tensor *tensors = p->plan->profiles[0].ranks[0].tensors;
  const struct pen_op *op = first_op(p, PEN_OP_LINEAR_FUSED);
  const char *k = tensors[op->operand[2]].name, *v = tensors[op->operand[3]].name;
  const bool persists = tensors[op->operand[2]].base == PEN_BASE_PERSISTENT;
  for (uint32_t i = 0; i < p->plan->profile_count; i++) {
    const struct pen_rank_program *tables = &p->plan->profiles[i].ranks[0];
    uint64_t *at[2] = {NULL, NULL};
    for (uint32_t t = 0; t < tables->tensor_count; t++)
      for (size_t n = 0; n < 2; n++)
        if (strcmp(tables->tensors[t].name, n ? v : k) == 0)
          at[n] = WRITABLE(uint64_t, &tables->tensors[t].offset);
    if (at[0] && at[1]) exchange_offsets(at[0], at[1]);
  }
  if (!persists) return true;
  struct pen_weight *of_k = weight_of(p, k), *of_v = weight_of(p, v);
  if (tensors[op->operand[2]].dtype == PEN_BF16)
    exchange_offsets(&of_k->bf16_offset, &of_v->bf16_offset);
  else
    exchange_offsets(&of_k->value_offset, &of_v->value_offset);
  return true;
}

static bool one_head_more(struct broken_plan *p) {
  *dim_of(p, PEN_OP_ATTENTION_QKV, "all") += 1;
  return true;
}

static bool wider_than_its_parts(struct broken_plan *p) {
  *dim_of(p, PEN_OP_LINEAR_FUSED_DW, "out") += 1;
  return true;
}

/* Of as many heads in all, others are rotated back: `heads` of q two more, of k one less. */
static bool rotates_values(struct broken_plan *p) {
  *dim_of(p, PEN_OP_ROPE_QKV_DX, "heads") += 2;
  *dim_of(p, PEN_OP_ROPE_QKV_DX, "kv_heads") -= 1;
  return true;
}

static bool rotated_again(struct broken_plan *p) {
  first_op(p, PEN_OP_ROPE_QKV_DX)->kind = PEN_OP_ROPE_QKV;
  return true;
}

static bool another_unit(struct broken_plan *p) {
  static const char *const signatures[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = signature,
#include "kernels/ops.def"
  };
  struct pen_op *op = first_op(p, PEN_OP_SWIGLU_FUSED_DX);
  int other = 0;
  while (other == op->kind || !signatures[other] ||
         strcmp(signatures[other], signatures[op->kind]) != 0)
    other++;
  op->kind = (uint16_t)other;
  return true;
}

static bool keys_for_queries(struct broken_plan *p) {
  struct pen_op *dx = first_op(p, PEN_OP_LINEAR_FUSED_DX);
  dx->operand[operand_named(dx, "w0")] = dx->operand[operand_named(dx, "w1")];
  return true;
}

static bool read_unrotated(struct broken_plan *p) {
  *operand_of(p, PEN_OP_ATTENTION_QKV_DX, "qkv") = *operand_of(p, PEN_OP_ROPE_QKV, "x");
  return true;
}

#define APART "does not begin where"
#define BYTES "but its bytes hold", "has overwritten", "overlaps it", "in the same bytes"
static const struct defect defects[] = {
    {"w1 for w2", keys_for_values, {APART}},
    {"dw1 for dw2", gradients_exchanged, {APART}},
    {"a weight left out", weight_left_out, {"w2 is missing"}},
    {"a weight of no rows", weight_of_none, {"bytes, but"}},
    {"a weight of another layer", keys_of_another_layer, {APART}},
    {"weights in another order in memory",
     weights_change_places,
     {APART, "at its address", "but "}},
    {"one head more than there are", one_head_more, {"is not the sum"}},
    {"wider than its parts", wider_than_its_parts, {"is not the sum"}},
    {"heads of v rotated back", rotates_values, {"derived: "}},
    {"rotated again, not back", rotated_again, {"derived: "}},
    {"the gradient of another unit", another_unit, {"derived: "}},
    {"the weight of k for that of q", keys_for_queries, {"bytes, but"}},
    {"q and k before they are rotated", read_unrotated, {"derived: ", BYTES}},
};

static bool is_expected(const struct defect *defect, const char *reason) {
  for (int r = 0; r < REASONS_MAX && defect->reasons[r]; r++)
    if (strstr(reason, defect->reasons[r])) return true;
  return false;
}

static void wrong_products_are_rejected(void **state) {
  (void)state;
  static const char *const plans[][SETTINGS_MAX] = {
      {0},
      {"model.dtype=bf16", "memory.recompute=[\"layer\",\"layer\"]"},
      {"data_parallel.replicas=2", "data_parallel.shard=weights"},
      {"data_parallel.replicas=2", "data_parallel.shard=weights", "data_parallel.unit=layer"}};
  for (size_t n = 0; n < sizeof plans / sizeof *plans; n++)
    for (size_t d = 0; d < sizeof defects / sizeof *defects; d++) {
      uint64_t seed = 1 + n;
      const char *name = pen_text("%s, plan %zu", defects[d].name, n);
      struct pen_plan *plan = plan_with("llama", 2, plans[n]);
      struct broken_plan p = {.plan = plan, .seed = &seed};
      struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
      assert_valid(plan, name);
      assert_true(defects[d].apply(&p));
      if (pen_verify(plan, &problem)) fail_msg("%s: accepted", name);
      if (!is_expected(&defects[d], problem.reason)) fail_msg("%s: %s", name, problem.reason);
      pen_free_all();
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_one_value_are_one),
      cmocka_unit_test(a_layer_has_few_launches),
      cmocka_unit_test(wrong_products_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
