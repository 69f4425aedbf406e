/* verify_inputs.c: inputs that data have by name: the plan lists them with what the ops say of
 * them, each stage that has a reader makes them, and the verifier rejects an op that makes
 * another input, or more than a microbatch has. */
#include "tests/support/broken.h"

static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

/* Pixels of 4 x 6 in u8, which the first unit reads, and one in the middle, and a digit in i64, of
 * four. */
static struct pen_plan *digits_plan(void) {
  return make_plan(
      pen_text("pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; };"
               "model = { family = \"described\"; description = \"%s\"; sequence = 1; };"
               "batch = { microbatch = 3; }; cluster = { device = \"cpu\"; };"
               "optimizer = { learning_rate = 1e-3; steps = 1; };",
               tests_path("models/digits.json")));
}

/* The first op of that kind of a rank that trains; null: none. */
static struct pen_op *op_of(const struct pen_plan *plan, uint32_t rank, int kind) {
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[rank];
  for (uint32_t i = 0; i < tables->op_count; i++)
    if (tables->ops[i].kind == kind) return WRITABLE(struct pen_op, &tables->ops[i]);
  return NULL;
}

static void the_plan_lists_them(void **state) {
  (void)state;
  const struct pen_plan *plan = digits_plan();
  assert_int_equal(plan->input_count, 2);
  const struct pen_input *pixels = &plan->inputs[0], *digit = &plan->inputs[1];
  assert_string_equal(pixels->name, "pixels");
  assert_true(pixels->dtype == PEN_INPUT_U8 && pixels->dim_count == 2 && pixels->dim[0] == 4 &&
              pixels->dim[1] == 6 && pixels->limit == 0 && !pixels->has_targets);
  assert_string_equal(digit->name, "digit");
  assert_true(digit->dtype == PEN_INPUT_I64 && digit->dim_count == 0 && digit->limit == 4 &&
              digit->has_targets);
  assert_true(op_of(plan, 0, PEN_OP_INPUT) && op_of(plan, 1, PEN_OP_INPUT));
  assert_true(op_of(plan, 1, PEN_OP_TARGETS) && !op_of(plan, 0, PEN_OP_TARGETS));
  for (uint32_t p = 0; p < plan->profile_count; p++)
    assert_false(pen_profile_kind_generates(plan->profiles[p].kind));
  pen_free_all();
}

static void others_are_rejected(void **state) {
  (void)state;
  const struct pen_plan *plan = digits_plan();
  struct pen_op *op = op_of(plan, 0, PEN_OP_INPUT);
  const int number = pen_signature_dim(pen_signature_of(PEN_OP_INPUT), "input");
  assert_string_equal(reason_of(plan), "");
  op->dim[number] = 3;
  assert_non_null(strstr(reason_of(plan), "(INPUT) reads input 3, but the plan has 2"));
  op->dim[number] = 2;
  assert_non_null(
      strstr(reason_of(plan), "(INPUT) makes 72 elements, but a microbatch has 3 of digit"));
  op->dim[number] = 1;
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_plan_lists_them),
                                     cmocka_unit_test(others_are_rejected)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
