/* verify_step.c: the device control block of a plan: complete for each sequence length; with any
 * column changed it is rejected, or still has space for all its contents; on the CPU it has the
 * shard staging alone. */
#include <stdio.h>

#include "gen/emit/columns.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/broken.h"

/* Shapes that this version builds for a GPU. */
static bool is_built(size_t which) {
  return !strstr(plan_shapes[which].more, "bf16") && !strstr(plan_shapes[which].more, "audit");
}

/* Two shapes of a step, of which the shorter has more microbatches: a feed of either has room for
 * its own. */
static void sequence_lengths_have_their_own_input_staging(void **state) {
  (void)state;
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  const char *text = topology_text(
      "llama", "1f1b", 2, 1, 4,
      "}; shapes = ({ sequence = 2; microbatches = 8; }); data_parallel = { replicas = 1;"
      " /* cuda */");
  struct pen_plan *plan = make_plan(text);
  if (!pen_verify(plan, &problem)) fail_msg("%s", problem.reason);
  uint32_t targets = 0;
  for (uint32_t i = 0; i + 1 < plan->staged_input_count; i++) {
    const struct pen_staged_input *feed = &plan->staged_inputs[i], *next = feed + 1;
    const uint32_t room = (uint32_t)((next->offset - feed->offset) / feed->microbatch_bytes);
    if (next->rank != feed->rank) continue;
    targets += room == 8;
    assert_true(room == 4 || room == 8 || room == 1); /* generation has one microbatch */
  }
  assert_true(targets > 0);
  pen_free_all();
}

/* The thread that writes a snapshot has pinned memory of its own. */
static void snapshots_have_their_own_staging(void **state) {
  (void)state;
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  const char *text = topology_text("llama", "1f1b", 2, 1, 4, "/* cuda */");
  uint64_t plain = make_plan(text)->memory[0].pinned_bytes;
  struct pen_plan *plan = make_plan(pen_text("%smemory = { snapshot = true; };\n", text));
  struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[0]);
  if (!pen_verify(plan, &problem)) fail_msg("%s", problem.reason);
  assert_true(memory->snapshot_bytes > 0);
  assert_int_equal(memory->pinned_bytes, plain + PEN_STAGING_BYTES);
  memory->pinned_bytes--;
  assert_false(pen_verify(plan, &problem));
  assert_non_null(strstr(problem.reason, "bytes of pinned memory"));
  memory->pinned_bytes++;
  memory->snapshot_offset += PEN_ALIGNMENT_BYTES; /* into the step part */
  assert_false(pen_verify(plan, &problem));
  pen_free_all();
}

/* A plan whose peers send shards of gradients: to a buffer with the size of the largest for each.
 */
static void check_staging(const char *transport, uint32_t replicas) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  struct pen_plan *plan = make_plan(
      topology_text("llama", "1f1b", 2, 1, 4,
                    pen_text("}; data_parallel = { replicas = %u; %s", replicas, transport)));
  if (!pen_verify(plan, &problem)) fail_msg("%s", problem.reason);
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    struct pen_rank_memory *memory = WRITABLE(struct pen_rank_memory, &plan->memory[rank]);
    const uint64_t staging =
        memory->staged_input_offset + memory->device_control_bytes - memory->shard_staging_offset;
    assert_true(replicas == 1 ? staging == 0 : staging >= (replicas - 1u) * PEN_ALIGNMENT_BYTES);
    memory->device_control_bytes -= PEN_ALIGNMENT_BYTES;
    assert_false(pen_verify(plan, &problem));
    assert_true(replicas == 1 || strstr(problem.reason, "staging memory is not its own") != NULL);
    memory->device_control_bytes += PEN_ALIGNMENT_BYTES;
    memory->shard_staging_offset += PEN_ALIGNMENT_BYTES;
    assert_false(pen_verify(plan, &problem));
    memory->shard_staging_offset -= PEN_ALIGNMENT_BYTES;
  }
  pen_free_all();
}

static void peers_that_send_shards_have_staging(void **state) {
  (void)state;
  for (uint32_t replicas = 1; replicas <= 3; replicas++) {
    check_staging("/* cuda */ /* nccl */", replicas);
    check_staging("/* ofi */", replicas);
  }
}

static struct pen_plan *plan_for(const char *device, size_t which) {
  return make_plan(topology_text(plan_shapes[which].family, plan_shapes[which].schedule,
                                 plan_shapes[which].ranks, plan_shapes[which].stages,
                                 plan_shapes[which].microbatches,
                                 pen_text("%s /* %s */", plan_shapes[which].more, device)));
}

static struct pen_plan *cuda_plan(size_t which) { return plan_for("cuda", which); }

static void every_sequence_length_has_one(void **state) {
  (void)state;
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    if (!is_built(which)) continue;
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    struct pen_plan *plan = cuda_plan(which);
    if (!pen_verify(plan, &problem))
      fail_msg("%s %s: %s", plan_shapes[which].family, plan_shapes[which].schedule, problem.reason);
    assert_true(plan->staged_input_count > 0 && plan->memory[0].pinned_bytes > 0);
    plan = plan_for("cpu", which);
    assert_true(plan->staged_input_count == 0 && plan->memory[0].pinned_bytes == 0 &&
                plan->memory[0].device_control_bytes == 0);
    pen_free_all();
  }
}

/* Does the verifier accept the plan with a column of an entry changed by this amount? */
static bool accepts(struct pen_plan *plan, const void *row, size_t offset, int64_t by) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  uint64_t *value = WRITABLE(uint64_t, (const char *)row + offset), kept = *value;
  *value += (uint64_t)by;
  bool accepted = pen_verify(plan, &problem);
  *value = kept;
  return accepted;
}

#define COLUMN(field) \
  { #field, offsetof(struct pen_rank_memory, field) }
static const struct {
  const char *name;
  size_t offset;
} columns[] = {COLUMN(staged_input_offset),  COLUMN(staged_input_bytes),  COLUMN(step_stats_offset),
               COLUMN(settings_offset),      COLUMN(reduce_offset),       COLUMN(flags_offset),
               COLUMN(shard_staging_offset), COLUMN(device_control_bytes)};

static void no_column_may_change(void **state) {
  (void)state;
  const int64_t less[] = {-PEN_ALIGNMENT_BYTES, -1, 1, -(1 << 20)};
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    if (!is_built(which)) continue;
    struct pen_plan *plan = cuda_plan(which);
    for (uint32_t rank = 0; rank < plan->rank_count; rank++)
      for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        for (size_t n = 0; n < sizeof less / sizeof *less; n++)
          if (columns[c].offset != offsetof(struct pen_rank_memory, device_control_bytes) ||
              n != 2) /* those at the end may belong to no rank */
            if (accepts(plan, &plan->memory[rank], columns[c].offset, less[n]) &&
                (c != 7 || less[n] < -PEN_ALIGNMENT_BYTES))
              fail_msg("%s of rank %u, %lld more: accepted", columns[c].name, rank,
                       (long long)less[n]);
    assert_false(
        accepts(plan, &plan->memory[0], offsetof(struct pen_rank_memory, pinned_bytes), -1));
    assert_true(accepts(plan, &plan->memory[0], offsetof(struct pen_rank_memory, pinned_bytes), 1));
    pen_free_all();
  }
}

static void no_input_staging_may_change(void **state) {
  (void)state;
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    if (!is_built(which)) continue;
    struct pen_plan *plan = cuda_plan(which);
    for (uint32_t i = 0; i < plan->staged_input_count; i++) {
      const struct pen_staged_input *feed = &plan->staged_inputs[i];
      for (int64_t by = -PEN_ALIGNMENT_BYTES; by <= PEN_ALIGNMENT_BYTES;
           by += PEN_ALIGNMENT_BYTES / 2)
        if (by != 0)
          assert_false(accepts(plan, feed, offsetof(struct pen_staged_input, offset), by) &&
                       accepts(plan, feed, offsetof(struct pen_staged_input, offset), -by));
      assert_false(accepts(plan, feed, offsetof(struct pen_staged_input, bytes), 4));
      assert_false(accepts(plan, feed, offsetof(struct pen_staged_input, microbatch_bytes),
                           PEN_ALIGNMENT_BYTES));
      assert_false(accepts(plan, feed, offsetof(struct pen_staged_input, microbatch_bytes),
                           -PEN_ALIGNMENT_BYTES));
      assert_false(accepts(plan, feed, offsetof(struct pen_staged_input, dim), 1));
    }
    struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
    plan->staged_input_count--;
    assert_false(pen_verify(plan, &problem));
    assert_non_null(strstr(problem.reason, "has no staged input"));
    plan->staged_input_count++;
    plan->device = PEN_DEVICE_CPU;
    assert_false(pen_verify(plan, &problem));
    pen_free_all();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_sequence_length_has_one),
      cmocka_unit_test(sequence_lengths_have_their_own_input_staging),
      cmocka_unit_test(snapshots_have_their_own_staging),
      cmocka_unit_test(peers_that_send_shards_have_staging),
      cmocka_unit_test(no_column_may_change),
      cmocka_unit_test(no_input_staging_may_change)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
