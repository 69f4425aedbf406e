/* verify_losses.c: losses with shares of their own: the plan lists the shares, and the verifier
 * rejects a loss and a gradient with different ones, one that is left out, one that is scaled
 * twice, and a share that the plan does not have; and other logits of score than those that the
 * losses read. */
#include "tests/support/broken.h"

static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

static struct pen_plan *losses_plan(const char *model, const char *recompute) {
  return make_plan(
      pen_text("pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; };"
               "model = { family = \"described\"; description = \"%s\"; sequence = 4; };"
               "batch = { microbatch = 2; loss_group = 2; }; cluster = { device = \"cpu\"; };"
               "memory = { recompute = \"%s\"; };"
               "optimizer = { learning_rate = 1e-3; steps = 1; };",
               tests_path(model), recompute));
}

/* The op number `n` of that kind of the last rank, from 0. */
static struct pen_op *op_of(const struct pen_plan *plan, int kind, uint32_t n) {
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[1];
  for (uint32_t i = 0; i < tables->op_count; i++)
    if (tables->ops[i].kind == kind && n-- == 0) return WRITABLE(struct pen_op, &tables->ops[i]);
  return NULL;
}

static void the_plan_lists_them(void **state) {
  (void)state;
  const struct pen_plan *plan = losses_plan("models/losses.json", "none");
  assert_int_equal(plan->share_count, 7);
  assert_false(plan->loss_is_mean);
  const struct pen_share *shares = plan->shares;
  assert_true(shares[0].over == PEN_SHARE_SAMPLES && shares[0].input == 0);
  assert_true(shares[1].over == PEN_SHARE_SUM && shares[1].least == 1.0);
  assert_string_equal(plan->inputs[shares[1].input - 1].name, "mask");
  assert_true(shares[4].over == PEN_SHARE_TARGETS && shares[4].factor == 0.75);
  assert_true(plan->inputs[shares[4].input - 1].has_targets);
  assert_non_null(op_of(plan, PEN_OP_SUM_LOSS, 3));
  assert_int_equal(plan->loss_group, 2);
  pen_free_all();
}

static void plans_verify(void **state) {
  (void)state;
  static const char *const kinds[] = {"none", "layer", "full"};
  for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
    assert_string_equal(reason_of(losses_plan("models/losses.json", kinds[n])), "");
    assert_string_equal(reason_of(losses_plan("models/policy.json", kinds[n])), "");
    pen_free_all();
  }
}

/* An op gets another operand: the plan is rejected with that reason. */
static void takes(const struct pen_plan *plan, struct pen_op *op, int k, uint32_t tensor,
                  const char *reason) {
  const uint32_t kept = op->operand[k];
  op->operand[k] = tensor;
  assert_non_null(strstr(reason_of(plan), reason));
  op->operand[k] = kept;
}

static void others_are_rejected(void **state) {
  (void)state;
  const struct pen_plan *plan = losses_plan("models/losses.json", "none");
  struct pen_op *loss = op_of(plan, PEN_OP_SUM_LOSS, 1), *sum = op_of(plan, PEN_OP_ADD_LOSS, 1),
                *share = op_of(plan, PEN_OP_SHARE, 1);
  static const char shares[] = "scaled: SUM_LOSS and its gradient have different shares, or none";
  assert_string_equal(reason_of(plan), "");
  takes(plan, loss, 1, PEN_NONE, shares);
  takes(plan, sum, 1, sum->operand[0], shares);
  takes(plan, sum, 2, PEN_NONE, "passed: "); /* a loss is left out, but not its gradient */
  loss->real[0] = 0.5;
  assert_non_null(strstr(reason_of(plan), "scaled: SUM_LOSS scales its gradient by 0.5, too"));
  loss->real[0] = 1.0;
  share->dim[0] = 7;
  assert_non_null(strstr(reason_of(plan), "(SHARE) makes share 7, but the plan has 7"));
  share->dim[0] = 0;
  assert_non_null(strstr(reason_of(plan), "same: "));
  share->dim[0] = 1;
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

/* What is copied: from where to where, and what it is added to. */
static void other_copies_are_rejected(void **state) {
  (void)state;
  const struct pen_plan *plan = losses_plan("models/losses.json", "none");
  struct pen_op *first = op_of(plan, PEN_OP_COPY_BLOCKS, 0),
                *second = op_of(plan, PEN_OP_COPY_BLOCKS, 1);
  takes(plan, second, 1, PEN_NONE, "passed: ");
  for (int n = 0; n < 2; n++) {
    struct pen_op *op = n ? op_of(plan, PEN_OP_SELECT_TOKENS, 1) : first;
    for (int dim = 2; dim < (n ? 5 : 7); dim++) {
      op->dim[dim]++;
      assert_string_not_equal(reason_of(plan), "");
      op->dim[dim]--;
    }
  }
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

/* The profile of score has logits that evaluation makes. */
static void other_logits_are_rejected(void **state) {
  (void)state;
  const struct pen_plan *plan = losses_plan("models/grpo.json", "none");
  const struct pen_profile *score = NULL;
  for (uint32_t i = 0; i < plan->profile_count; i++)
    if (plan->profiles[i].kind == PEN_SCORE) score = &plan->profiles[i];
  assert_non_null(score);
  assert_string_equal(reason_of(plan), "");
  const struct pen_rank_program *tables = &score->ranks[1];
  struct pen_op *op = WRITABLE(struct pen_op, tables->ops);
  unsigned changed = 0;
  for (uint32_t i = 0; i < tables->op_count; i++) {
    assert_true(op[i].kind != PEN_OP_LOGP && op[i].kind != PEN_OP_INPUT);
    if (op[i].kind != PEN_OP_GELU) continue;
    op[i].kind = PEN_OP_GELU_TANH;
    assert_non_null(strstr(reason_of(plan), "generated: score has logits of"));
    op[i].kind = PEN_OP_GELU;
    changed++;
  }
  assert_true(changed > 0);
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_plan_lists_them), cmocka_unit_test(plans_verify),
      cmocka_unit_test(others_are_rejected), cmocka_unit_test(other_copies_are_rejected),
      cmocka_unit_test(other_logits_are_rejected)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
