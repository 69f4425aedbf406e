/* verify_shapes.c: plans of several shapes: the verifier accepts those of the generator, and
 * rejects profiles that do not go together. */
#include "gen/verify/verify.h"
#include "tests/support/broken.h"

static struct pen_plan *plan_of_shapes(const char *schedule, unsigned ranks, unsigned stages) {
  return make_plan(pen_text(
      "%s%s", topology_text("llama", schedule, ranks, stages, 4, ""),
      "shapes = ({ sequence = 4; microbatches = 6; }, { sequence = 6; microbatches = 4; });\n"));
}

static void sequence_lengths_are_accepted(void **state) {
  (void)state;
  static const struct {
    const char *schedule;
    unsigned ranks, stages;
  } of[] = {{"1f1b", 2, 1}, {"gpipe", 3, 1}, {"zero_bubble_v", 2, 2}, {"inference", 2, 1}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    struct pen_plan *plan = plan_of_shapes(of[i].schedule, of[i].ranks, of[i].stages);
    if (!pen_verify(plan, &problem))
      fail_msg("%s: rank %u row %u: %s", of[i].schedule, problem.rank, problem.action,
               problem.reason);
    assert_int_equal(plan->profile_count, strcmp(of[i].schedule, "inference") ? 8 : 5);
    assert_int_equal(plan->loss_count, 6);
    pen_free_all();
  }
}

static bool fewer_losses(struct pen_plan *plan) {
  plan->loss_count--;
  return true;
}
static bool other_rank(struct pen_plan *plan) {
  struct pen_stage *stage = WRITABLE(struct pen_stage, plan->profiles[2].stages);
  stage[0].rank = 1;
  stage[1].rank = 0;
  return true;
}
static bool other_constant(struct pen_plan *plan) {
  const struct pen_rank_program *tables = &plan->profiles[4].ranks[0];
  WRITABLE(struct pen_op, tables->ops)[tables->start_first_op].real[0] += 1;
  return true;
}
static bool moved_constant(struct pen_plan *plan) {
  const struct pen_rank_program *tables = &plan->profiles[4].ranks[0];
  const struct pen_op *op = &tables->ops[tables->start_first_op];
  WRITABLE(struct pen_tensor, tables->tensors)[op->operand[0]].offset -= 64;
  return true;
}

static bool two_at_once(struct pen_plan *plan) {
  struct pen_profile *last = WRITABLE(struct pen_profile, &plan->profiles[plan->profile_count - 1]);
  last->microbatch_count = 2;
  return last->kind == PEN_CACHED;
}

static void a_wrong_switch_is_rejected(void **state) {
  (void)state;
  static const struct {
    bool (*spoil)(struct pen_plan *plan);
    const char *says;
  } wrong[] = {
      {fewer_losses, "has 6 microbatches; the loss table holds 5"},
      {other_rank, "rank"},
      {other_constant, "differ, but overlap"},
      {moved_constant, "rope_table"},
      {two_at_once, "a token needs the one before it"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    struct pen_plan *plan = plan_of_shapes("1f1b", 2, 1);
    wrong[i].spoil(plan);
    assert_false(pen_verify(plan, &problem));
    if (!strstr(problem.reason, wrong[i].says))
      fail_msg("%zu: \"%s\" does not say \"%s\"", i, problem.reason, wrong[i].says);
    pen_free_all();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequence_lengths_are_accepted),
      cmocka_unit_test(a_wrong_switch_is_rejected),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
