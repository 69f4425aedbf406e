/* step_stats.c: learning rate, clipping, the loss of a step and the order of replicas' sums
 * against contracts.md §9, and numbers in the log. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "runtime/observe/step_log.h"
#include "runtime/exec/collectives.h"
#include "runtime/comm/step_stats.h"
#include "runtime/base/learning_rate.h"
#include "runtime/base/text_writer.h"
#include "runtime/exec/optimizer_step.h"
#include "runtime/plan/shard.h"

#define assert_near(value, expected, tolerance) \
  assert_true(fabs((value) - (expected)) <= (tolerance))

static struct pen_optimizer optimizer_of(enum pen_decay decay) {
  return (struct pen_optimizer){.learning_rate = 1e-3,
                                .minimum_ratio = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .clip_norm = 1.0,
                                .decay_steps = 20,
                                .warmup_steps = 10,
                                .steps = 110,
                                .decay = (uint8_t)decay};
}

static void test_warmup_rises_to_the_full_rate(void **state) {
  (void)state;
  for (int decay = PEN_DECAY_CONSTANT; decay < PEN_DECAYS; decay++) {
    struct pen_optimizer optimizer = optimizer_of(decay);
    for (uint64_t k = 1; k <= 10; k++) {
      assert_near(pen_learning_rate(&optimizer, k), 1e-3 * (double)k / 10, 1e-18);
    }
  }
}

static void test_decay_follows_its_formula(void **state) {
  (void)state;
  struct pen_optimizer constant = optimizer_of(PEN_DECAY_CONSTANT),
                       linear = optimizer_of(PEN_DECAY_LINEAR),
                       cosine = optimizer_of(PEN_DECAY_COSINE), wsd = optimizer_of(PEN_DECAY_WSD);
  for (uint64_t k = 11; k <= 110; k++) {
    double t = (double)(k - 10) / 100;
    assert_near(pen_learning_rate(&constant, k), 1e-3, 0);
    assert_near(pen_learning_rate(&linear, k), 1e-3 * (1 - 0.9 * t), 1e-18);
    assert_near(pen_learning_rate(&cosine, k),
                1e-3 * (0.1 + 0.9 * (1 + cos(3.14159265358979323846 * t)) / 2), 1e-18);
    assert_near(pen_learning_rate(&wsd, k),
                k <= 90 ? 1e-3 : 1e-3 * (1 - 0.9 * (double)(k - 90) / 20), 1e-18);
  }
}

static void test_the_rate_stays_at_its_minimum_after_the_last_step(void **state) {
  (void)state;
  struct pen_optimizer linear = optimizer_of(PEN_DECAY_LINEAR),
                       cosine = optimizer_of(PEN_DECAY_COSINE);
  for (uint64_t k = 110; k < 1000; k += 89) {
    assert_near(pen_learning_rate(&linear, k), 1e-4, 1e-18);
    assert_near(pen_learning_rate(&cosine, k), 1e-4, 1e-18);
  }
}

static void test_no_steps_after_warmup_divides_by_nothing(void **state) {
  (void)state;
  struct pen_optimizer optimizer = optimizer_of(PEN_DECAY_COSINE);
  optimizer.steps = 10;
  assert_near(pen_learning_rate(&optimizer, 11), 1e-4, 1e-18);
  optimizer.warmup_steps = 0;
  assert_near(pen_learning_rate(&optimizer, 10), 1e-4, 1e-18);
}

/* A run that is shorter than its warm-up ends on the way up; one that continues beyond its end
 * warms up all the same, and nothing is left to decay over. */
static void test_a_run_may_end_within_the_warmup(void **state) {
  (void)state;
  for (int decay = PEN_DECAY_CONSTANT; decay < PEN_DECAYS; decay++) {
    struct pen_optimizer optimizer = optimizer_of(decay);
    optimizer.warmup_steps = 20;
    optimizer.steps = 5;
    optimizer.decay_steps = 0; /* as the generator settles it */
    for (uint64_t k = 1; k <= 20; k++)
      assert_near(pen_learning_rate(&optimizer, k), 1e-3 * (double)k / 20, 1e-18);
    for (uint64_t k = 21; k < 100; k++)
      assert_near(pen_learning_rate(&optimizer, k), decay == PEN_DECAY_CONSTANT ? 1e-3 : 1e-4,
                  1e-18);
  }
}

/* The scale of a step with so many targets whose gradients have that norm. */
static double scale_of(double clip_norm, uint64_t targets, double norm) {
  const struct pen_optimizer optimizer = optimizer_of(PEN_DECAY_CONSTANT);
  const struct pen_adamw base = pen_adamw_of_step(&optimizer, 1, targets);
  const double stats[] = {norm};
  struct pen_adamw settings = {.updates = 0};
  pen_cpu.clip_scale(&settings, &base, stats, 1, 1, 1, clip_norm, true, NULL);
  return settings.gradient_scale;
}

static void test_clipping_scales_down_and_never_up(void **state) {
  (void)state;
  assert_near(scale_of(1, 1, 0.5), 1.0, 0);
  assert_near(scale_of(1, 1, 4.0), 1.0 / (4.0 + 1e-6), 0);
  assert_near(scale_of(0, 1, 4.0), 1.0, 0);
}

/* The CPU's clip_scale() and the log use the same norm, to the bit. */
static void test_the_norm_that_clips_is_the_norm_that_is_logged(void **state) {
  (void)state;
  const double stats[] = {1e16, 1.0, 3.0, 0.5, -1e16, 2.0};
  const struct pen_optimizer optimizer = optimizer_of(PEN_DECAY_CONSTANT);
  const struct pen_adamw base = pen_adamw_of_step(&optimizer, 1, 1);
  struct pen_plan plan = {
      .replica_count = 2, .tensor_ranks = 1, .shard_ranks = 2, .weight_count = 2, .loss_count = 1};
  for (int norm = PEN_NORM_TWO; norm <= PEN_NORM_INFINITE; norm++) {
    struct pen_adamw settings = {.updates = 0};
    plan.optimizer.norm = (uint8_t)norm;
    pen_cpu.clip_scale(&settings, &base, stats, 2, 2, 3, 1e-3, norm == PEN_NORM_INFINITE, NULL);
    assert_near(settings.gradient_scale, 1e-3 / (pen_step_stats_norm(&plan, stats) + 1e-6), 0);
  }
}

/* A step without targets, or whose norm is not finite, does not count; without clipping the norm is
 * not known. */
static void test_skipped_steps_are_no_updates(void **state) {
  (void)state;
  const struct pen_optimizer optimizer = optimizer_of(PEN_DECAY_CONSTANT);
  const struct {
    double clip_norm, norm;
    uint64_t targets, counted;
  } steps[] = {{1, 0.5, 1, 1}, {1, 4, 0, 0}, {1, (double)NAN, 1, 0}, {1, (double)INFINITY, 1, 0},
               {1, 4, 1, 1},   {0, 4, 0, 0}, {0, (double)NAN, 1, 1}, {0, 4, 1, 1}};
  struct pen_adamw settings = {.updates = 7};
  uint64_t updates = 7;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    const struct pen_adamw base = pen_adamw_of_step(&optimizer, i + 1, steps[i].targets);
    pen_cpu.clip_scale(&settings, &base, &steps[i].norm, 1, 1, 1, steps[i].clip_norm, false, NULL);
    updates += steps[i].counted;
    assert_int_equal(settings.updates, updates);
  }
}

static void test_the_greatest_magnitude_is_the_greatest_of_all_tensors(void **state) {
  (void)state;
  double board[] = {9.0, 16.0, 4.0, 1.0};
  struct pen_plan plan = {.replica_count = 1,
                          .tensor_ranks = 1,
                          .shard_ranks = 1,
                          .weight_count = 3,
                          .loss_count = 1,
                          .optimizer.norm = PEN_NORM_INFINITE};
  assert_near(pen_step_stats_norm(&plan, board), 16.0, 0);
  board[0] = INFINITY;
  assert_true(isinf(pen_step_stats_norm(&plan, board)));
  board[2] = NAN;
  assert_true(isnan(pen_step_stats_norm(&plan, board)));
}

static void test_a_step_is_skipped_where_the_norm_is_known_and_not_finite(void **state) {
  (void)state;
  assert_false(isnan(scale_of(1, 1, 1e300)));
  assert_true(isnan(scale_of(1, 1, INFINITY)));
  assert_true(isnan(scale_of(1, 1, NAN)));
  assert_false(isnan(scale_of(0, 1, NAN)));
  assert_true(isnan(scale_of(0, 0, 0)));
}

/* The order of a sum shows in its last bit: 1e16 takes up ones only together. */
static void test_board_sums_in_rising_order(void **state) {
  (void)state;
  double board[] = {9.0, 16.0, 1e16, 1.0, 1.0, -1e16};
  struct pen_plan plan = {.replica_count = 1,
                          .tensor_ranks = 1,
                          .shard_ranks = 1,
                          .weight_count = 2,
                          .loss_count = 4,
                          .microbatch = 2,
                          .sequence = 8};
  assert_near(pen_step_stats_norm(&plan, board), 5.0, 0);
  assert_near(pen_step_stats_loss(&plan, board, 64), 0.0, 0);
  plan.loss_is_mean = true;
  board[2] = 64;
  board[5] = 62;
  assert_near(pen_step_stats_loss(&plan, board, 64), 2.0, 0);
  assert_near(pen_step_stats_loss(&plan, board, 32), 4.0, 0);
  board[2] = board[3] = board[4] = board[5] = 0; /* no target counts: a mean over nothing */
  assert_true(isnan(pen_step_stats_loss(&plan, board, 0)));
  assert_false(pen_step_stats_diverged(&plan, board, 0)); /* which is none of its faults */
}

/* Of two replicas with a tensor and a microbatch each, whose two routers have three experts: of the
 * first router they are chosen 1 + 2, 0 + 3 and 0 + 0 times, of the second 1 + 1 each. */
static void test_the_load_is_that_of_all_replicas(void **state) {
  (void)state;
  static const struct pen_router routers[] = {{.layer = 0, .experts = 3},
                                              {.layer = 2, .experts = 3}};
  static const double board[] = {9, 9, 1, 0, 0, 1, 1, 1, 9, 9, 2, 3, 0, 1, 1, 1};
  const struct pen_plan plan = {.replica_count = 2,
                                .tensor_ranks = 1,
                                .shard_ranks = 2,
                                .weight_count = 1,
                                .loss_count = 1,
                                .routers = routers,
                                .router_count = 2};
  assert_int_equal(2 * pen_stats_entries(&plan), sizeof board / sizeof *board);
  assert_near(pen_step_stats_choices(&plan, board, 0, 1), 3, 0);
  const struct pen_expert_load load = pen_step_stats_load(&plan, board);
  assert_near(load.greatest, 1.5, 0);
  assert_int_equal(load.idle, 1);
}

/* ---- replicas ---- */

enum { REPLICAS = 3 };
static float gradients[REPLICAS][REPLICAS * PEN_NORM_BLOCK];

static unsigned char *arena_of(struct pen_transport *transport, int group, uint32_t member) {
  return (void)transport, (void)group, (unsigned char *)gradients[member];
}
static bool all_ended(struct pen_transport *transport, int group, uint32_t count) {
  return (void)transport, (void)group, (void)count, true;
}
static void no_signal(struct pen_transport *transport, int group) { (void)transport, (void)group; }
static void no_call(struct pen_transport *transport) { (void)transport; }

/* Whatever its own place among them, a replica adds the first to the second, then the third: the
 * one is lost beside what goes away again. */
static void test_replicas_add_gradients_in_their_order(void **state) {
  (void)state;
  const float addend[REPLICAS] = {1, 1 << 24, -(1 << 24)};
  const struct pen_rank_memory memory = {.arena_bytes = 0};
  const struct pen_transport_ops ops = {.member_arena = arena_of,
                                        .wait_group = all_ended,
                                        .signal_group = no_signal,
                                        .group_begin = no_call,
                                        .group_end = no_call};
  const struct pen_weight weight = {.count = REPLICAS * PEN_NORM_BLOCK, .split_count = 1};
  const struct pen_plan plan = {.replica_count = REPLICAS,
                                .tensor_ranks = 1,
                                .shard_ranks = REPLICAS,
                                .rank_count = 1,
                                .weights = &weight,
                                .weight_count = 1,
                                .memory = &memory};
  const struct pen_collective collective = {
      .group = PEN_DATA, .waits = true, .completes = true, .event = PEN_NONE, .put_count = 1};
  const struct pen_put put = {.kind = PEN_PUT_ADD, .group = PEN_SHARD, .dtype = PEN_F32};
  const struct pen_frame frame = {{0}};
  const struct pen_rank_program tables = {
      .collectives = &collective, .puts = &put, .frames = &frame};
  const struct pen_action row = {.kind = PEN_REDUCE_SCATTER};
  assert_non_null(pen_kernels_open());
  for (uint32_t own = 0; own < REPLICAS; own++) {
    const struct pen_shard shard = pen_shard_of(&plan, 0, own);
    const float *sources[REPLICAS];
    struct pen_transport transport = {.ops = &ops};
    struct pen_endpoint endpoint = {.plan = &plan, .replica = own, .global = own};
    struct pen_vm vm = {.plan = &plan,
                        .endpoint = &endpoint,
                        .replica = own,
                        .transport = &transport,
                        .device = &pen_cpu,
                        .arena = (unsigned char *)gradients[own],
                        .program = &tables,
                        .sources = sources};
    for (uint32_t i = 0; i < REPLICAS * REPLICAS * PEN_NORM_BLOCK; i++) {
      gradients[i / (REPLICAS * PEN_NORM_BLOCK)][i % (REPLICAS * PEN_NORM_BLOCK)] =
          addend[i / (REPLICAS * PEN_NORM_BLOCK)];
    }
    assert_true(pen_run_collective(&vm, &row));
    for (uint64_t i = 0; i < weight.count; i++) {
      const bool summed = i >= shard.first && i < shard.first + shard.count;
      assert_true(gradients[own][i] == (summed ? 0 : addend[own]));
    }
  }
}

static void test_logged_numbers_read_back_exactly(void **state) {
  (void)state;
  const double values[] = {
      0.1, 1.0 / 3, 5.541263545, 1e-300, 4.9e-324, 1.7976931348623157e308, 0.00020000000000000001};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    char text[32];
    assert_true(pen_json_number(text, sizeof text, values[i]) < 32);
    assert_memory_equal(&(double){strtod(text, NULL)}, &values[i], sizeof values[i]);
  }
  const double strange[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < 3; i++) {
    char text[32];
    pen_json_number(text, sizeof text, strange[i]);
    assert_string_equal(text, "null");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_warmup_rises_to_the_full_rate),
      cmocka_unit_test(test_decay_follows_its_formula),
      cmocka_unit_test(test_the_rate_stays_at_its_minimum_after_the_last_step),
      cmocka_unit_test(test_no_steps_after_warmup_divides_by_nothing),
      cmocka_unit_test(test_a_run_may_end_within_the_warmup),
      cmocka_unit_test(test_clipping_scales_down_and_never_up),
      cmocka_unit_test(test_the_norm_that_clips_is_the_norm_that_is_logged),
      cmocka_unit_test(test_skipped_steps_are_no_updates),
      cmocka_unit_test(test_the_greatest_magnitude_is_the_greatest_of_all_tensors),
      cmocka_unit_test(test_a_step_is_skipped_where_the_norm_is_known_and_not_finite),
      cmocka_unit_test(test_board_sums_in_rising_order),
      cmocka_unit_test(test_the_load_is_that_of_all_replicas),
      cmocka_unit_test(test_replicas_add_gradients_in_their_order),
      cmocka_unit_test(test_logged_numbers_read_back_exactly),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
