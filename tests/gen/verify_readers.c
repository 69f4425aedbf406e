/* verify_readers.c: gradients of values with several readers: the verifier accepts the sums that
 * the generator makes, by ADD where no rule has an addend, and rejects one that lacks a reader's
 * part. */
#include "tests/support/broken.h"

/* The first reason that the verifier gives; "" if it accepts the plan. */
static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

/* A layer of this description has every kind of sum. */
static struct pen_plan *readers_plan(const char *settings) {
  return make_plan(pen_text(
      "pipeline = { ranks = 2; microbatches = 2; schedule = \"1f1b\"; zero_bubble = true; };"
      "model = { family = \"described\"; description = \"%s\"; sequence = 4; %s };"
      "batch = { microbatch = 1; }; cluster = { device = \"cpu\"; }; generate = { prompts = 0; };"
      "optimizer = { learning_rate = 1e-3; steps = 1; };",
      tests_path("models/readers.json"), settings));
}

/* An ADD of a program of a rank that computes input gradients, from the op `from` on; null: none.
 */
static struct pen_op *next_sum(const struct pen_plan *plan, uint32_t rank, uint32_t *from) {
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[rank];
  for (uint32_t row = 0; row < tables->action_count; row++) {
    const struct pen_program *program = &tables->programs[tables->actions[row].program];
    if (tables->actions[row].kind != PEN_I) continue;
    if (*from < program->first_op) *from = program->first_op;
    for (; *from < program->first_op + program->op_count; ++*from)
      if (tables->ops[*from].kind == PEN_OP_ADD)
        return WRITABLE(struct pen_op, &tables->ops[(*from)++]);
    return NULL; /* all microbatches run one program */
  }
  return NULL;
}

/* In a layer: of d, and of what the layer takes two, by ADD and GELU; of a, which is added to
 * itself; of n two by SWIGLU and three by ATTENTION. RMSNORM and LINEAR have addends. */
enum { LAYERS = 3, SUMS = LAYERS * 9 };

static void check_sums(const char *settings, uint32_t wanted) {
  struct pen_plan *plan = readers_plan(settings);
  uint32_t sums = 0;
  assert_string_equal(reason_of(plan), "");
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    uint32_t from = 0;
    for (struct pen_op *sum; (sum = next_sum(plan, rank, &from)); sums++)
      for (int k = 0; k < 2; k++) {
        const struct pen_op whole = *sum;
        if (whole.operand[0] == whole.operand[1]) continue; /* of a + a */
        sum->operand[k] = whole.operand[1 - k];
        if (!*reason_of(plan)) fail_msg("sum %u without its part %d is accepted", sums, k);
        *sum = whole;
      }
  }
  assert_int_equal(sums, wanted);
  pen_free_all();
}

static void each_reader_is_in_the_sum(void **state) {
  (void)state;
  check_sums("", SUMS);
}

static void in_bf16_too(void **state) {
  (void)state;
  check_sums("dtype = \"bf16\";", SUMS);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_reader_is_in_the_sum),
                                     cmocka_unit_test(in_bf16_too)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
