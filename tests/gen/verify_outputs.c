/* verify_outputs.c: what model.outputs names is kept to the end of a step, and the verifier rejects
 * a plan in which it is not. */
#include "tests/support/broken.h"

/* The first reason that the verifier gives; "" if it accepts the plan. */
static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

static void assert_rejects(const struct pen_plan *plan, const char *reason) {
  if (!strstr(reason_of(plan), reason)) fail_msg("\"%s\" lacks: %s", reason_of(plan), reason);
}

static struct pen_plan *outputs_plan(void) {
  return make_plan(
      "pipeline = { ranks = 2; microbatches = 4; schedule = \"1f1b\"; };"
      "model = { family = \"gpt2\"; layers = 2; hidden = 64; heads = 4; ffn = 160; vocab = 257;"
      " sequence = 64; outputs = [\"logits\"]; }; batch = { microbatch = 2; };"
      "cluster = { device = \"cpu\"; }; optimizer = { learning_rate = 1e-3; steps = 1; };");
}

/* The tensor that a profile keeps. */
static struct pen_tensor *kept_of(const struct pen_profile *profile) {
  const struct pen_rank_program *tables = &profile->ranks[1];
  for (uint32_t t = 0; t < tables->tensor_count; t++)
    if (tables->tensors[t].base == PEN_BASE_RESULT)
      return WRITABLE(struct pen_tensor, &tables->tensors[t]);
  fail_msg("%s keeps nothing", profile->name);
  return NULL;
}

static void they_have_memory_of_their_own(void **state) {
  (void)state;
  struct pen_plan *plan = outputs_plan();
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[1]);
  const uint64_t bytes = 2 * 64 * 257 * sizeof(float);
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(plan->output_count, 1);
  assert_int_equal(plan->outputs->bytes, bytes);
  assert_int_equal(memory->output_bytes, 4 * pen_aligned(bytes));
  memory->output_bytes -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "kept: the outputs have");
  memory->output_bytes += PEN_ALIGNMENT_BYTES;
  WRITABLE(struct pen_output, plan->outputs)->offset += PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "overlaps another output, or another microbatch's");
  WRITABLE(struct pen_output, plan->outputs)->offset -= PEN_ALIGNMENT_BYTES;
  plan->output_stride -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "kept: the outputs of its microbatch are at");
  pen_free_all();
}

static void each_microbatch_has_its_place(void **state) {
  (void)state;
  struct pen_plan *plan = outputs_plan();
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[1];
  struct pen_frame *frame = NULL;
  for (uint32_t a = 0; a < tables->action_count && !frame; a++)
    if (tables->actions[a].kind == PEN_F && tables->actions[a].microbatch == 1)
      frame = WRITABLE(struct pen_frame, &tables->frames[tables->actions[a].frame]);
  assert_non_null(frame);
  frame->base[PEN_BASE_RESULT] = plan->output_offset;
  assert_rejects(plan, "kept: the outputs of its microbatch are at");
  pen_free_all();
}

static void forward_makes_them(void **state) {
  (void)state;
  struct pen_plan *plan = outputs_plan();
  struct pen_tensor *kept = kept_of(&plan->profiles[1]);
  WRITABLE(struct pen_output, plan->outputs)->width++;
  assert_rejects(plan, "rows of 258 elements");
  WRITABLE(struct pen_output, plan->outputs)->width--;
  WRITABLE(struct pen_output, plan->outputs)->rows++;
  assert_rejects(plan, "kept: logits has");
  WRITABLE(struct pen_output, plan->outputs)->rows--;
  kept->name = "s1.other";
  assert_rejects(plan, "kept: logits has no tensor in eval");
  kept->name = "s1.logits";
  kept->base = PEN_BASE_SCRATCH;
  assert_rejects(plan, "kept: eval keeps 0 tensors");
  kept->base = PEN_BASE_RESULT;
  assert_string_equal(reason_of(plan), "");
  pen_free_all();
}

/* The gradient of the loss would lie in the memory of the logits. */
static void nothing_else_writes_there(void **state) {
  (void)state;
  enum { DLOGITS = 4 };
  struct pen_plan *plan = outputs_plan();
  const struct pen_rank_program *tables = &plan->profiles[0].ranks[1];
  const uint32_t kept = (uint32_t)(kept_of(&plan->profiles[0]) - tables->tensors);
  for (uint32_t i = 0; i < tables->op_count; i++)
    if (tables->ops[i].kind == PEN_OP_CROSS_ENTROPY)
      WRITABLE(struct pen_op, &tables->ops[i])->operand[DLOGITS] = kept;
  assert_rejects(plan, "kept: logits is written once, by F of the last stage, but not in train");
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_have_memory_of_their_own),
      cmocka_unit_test(each_microbatch_has_its_place),
      cmocka_unit_test(forward_makes_them),
      cmocka_unit_test(nothing_else_writes_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
