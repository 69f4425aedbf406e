/* verify_audit.c: what memory.audit reserves, and that the verifier rejects a plan with less, with
 * something else in it, or with messages that have no room for a checksum. */
#include "runtime/plan/audit_sum.h"
#include "tests/support/broken.h"

/* A model whose largest op has more outputs than the least memory; `more`: further settings. */
static struct pen_plan *audited_plan(const char *more) {
  return make_plan(pen_text(
      "pipeline = { ranks = 2; microbatches = 4; schedule = \"1f1b\"; };"
      "model = { family = \"llama\"; layers = 2; hidden = 64; heads = 4; ffn = 128; vocab = 257;"
      " sequence = 64; }; batch = { microbatch = 2; };"
      "optimizer = { learning_rate = 1e-3; steps = 1; }; cluster = { device = \"cpu\"; };"
      "memory = { audit = true; };%s",
      more));
}

/* The first reason that the verifier gives; "" if it accepts the plan. */
static const char *reason_of(const struct pen_plan *plan) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  return pen_verify(plan, &problem) ? "" : pen_text("%s", problem.reason);
}

static void assert_rejects(const struct pen_plan *plan, const char *reason) {
  if (!strstr(reason_of(plan), reason)) fail_msg("\"%s\" lacks: %s", reason_of(plan), reason);
}

static void check_memory(struct pen_plan *plan) {
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[1]);
  assert_string_equal(reason_of(plan), "");
  memory->audit_bytes -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "bytes of outputs, but the audit memory");
  memory->audit_bytes += PEN_ALIGNMENT_BYTES;
  assert_true(memory->audit_bytes > PEN_AUDIT_BYTES_LEAST);
  memory->audit_offset -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "the audit memory of an op overlaps");
  memory->audit_offset = memory->persistent_end;
  assert_rejects(plan, "the audit memory of an op is outside the persistent part");
  pen_free_all();
}

static void the_memory_holds_the_largest_op_and_nothing_else(void **state) {
  (void)state;
  check_memory(audited_plan(""));
}

/* Of which the last has fewer tokens of the vocabulary. */
static void so_does_that_of_tensor_ranks(void **state) {
  (void)state;
  struct pen_plan *plan = audited_plan("tensor_parallel = { ranks = 2; sequence = false; };");
  assert_int_equal(plan->tensor_ranks, 2);
  assert_true(plan->tensor_rank_dim_count > 0);
  check_memory(plan);
}

static void a_small_model_has_the_least(void **state) {
  (void)state;
  struct pen_plan *plan = make_plan(
      pen_text("%smemory = { audit = true; };\n", topology_text("mlp", "1f1b", 2, 1, 4, "")));
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[0]);
  assert_string_equal(reason_of(plan), "");
  assert_int_equal(memory->audit_bytes, PEN_AUDIT_BYTES_LEAST);
  memory->audit_bytes -= PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "fewer than 16384");
  pen_free_all();
}

static void a_plan_without_audits_has_none(void **state) {
  (void)state;
  struct pen_plan *plan = make_plan(topology_text("llama", "1f1b", 2, 1, 4, ""));
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[0]);
  assert_false(plan->audits);
  assert_int_equal(memory->audit_bytes, 0);
  memory->audit_bytes = PEN_ALIGNMENT_BYTES;
  assert_rejects(plan, "memory.audit is false");
  pen_free_all();
}

/* Of every kind that is audited: activations, their gradients, a tied weight. */
static void messages_have_room_for_a_checksum(void **state) {
  (void)state;
  struct pen_plan *plan = make_plan(pen_text(
      "%smemory = { audit = true; };\n", topology_text("llama", "1f1b", 2, 1, 4, "/* tied */")));
  const struct pen_profile *profile = &plan->profiles[0];
  unsigned seen = 0;
  assert_string_equal(reason_of(plan), "");
  for (uint32_t m = 0; m < profile->message_count; m++) {
    struct pen_message *message = WRITABLE(struct pen_message, &profile->messages[m]);
    if (message->kind == PEN_SEND_G) continue;
    seen |= 1u << message->kind;
    message->bytes -= PEN_ALIGNMENT_BYTES;
    assert_rejects(plan, "its message has");
    message->bytes += PEN_ALIGNMENT_BYTES;
  }
  assert_int_equal(seen, 1u << PEN_SEND_F | 1u << PEN_SEND_B | 1u << PEN_SEND_V);
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_memory_holds_the_largest_op_and_nothing_else),
      cmocka_unit_test(so_does_that_of_tensor_ranks),
      cmocka_unit_test(a_small_model_has_the_least),
      cmocka_unit_test(a_plan_without_audits_has_none),
      cmocka_unit_test(messages_have_room_for_a_checksum),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
