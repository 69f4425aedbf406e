/* robustness.c: one order with other costs, against the simulator with these costs; the numbers
 * that are drawn, and what spreads follow from them. */
#include <math.h>
#include <stdio.h>

#include "gen/timing/collectives.h"
#include "gen/timing/robustness.h"
#include "gen/timing/timing.h"
#include "tests/support/plans.h"

struct retiming_case {
  struct pen_partition *partition;
  struct pen_order *order;
  struct pen_stage_cost *cost;
  struct pen_collective_cost *collective_cost;
  struct pen_training training;
  double overlap;
  struct pen_timing *timing;
  struct pen_retiming *retiming;
};

static struct pen_retiming *retiming_of(const struct retiming_case *c) {
  return pen_retiming(c->order, c->timing, c->partition, &c->training, c->cost, c->collective_cost,
                      c->overlap);
}

/* A schedule, with pairs or not, with whole costs or none, and with replicas or not. */
static struct retiming_case random_case(uint64_t *seed) {
  static const char *const names[] = {"gpipe", "1f1b", "zero_bubble_v", "dual_pipe_v"};
  const char *name = names[draw(seed, 4)];
  bool pairs = !strcmp(name, "dual_pipe_v");
  uint32_t ranks = pairs ? 2 + 2 * (uint32_t)draw(seed, 2) : 1 + (uint32_t)draw(seed, 5),
           stages = strcmp(name, "gpipe") ? 2 : 1;
  struct retiming_case c = {.overlap = pairs && draw(seed, 2) ? (double)draw(seed, 9) : -1};
  c.order = make_order(name, 0, !pairs && draw(seed, 2), ranks, stages, 2 * ranks, &c.partition);
  c.partition->replica_count = c.partition->shard_ranks = 1 + (uint32_t)draw(seed, 2);
  c.training.adds_tied_gradient = draw(seed, 3) == 0;
  c.cost = pen_new(c.partition->stage_count, sizeof *c.cost);
  c.collective_cost = pen_new(c.partition->stage_count, sizeof *c.collective_cost);
  for (uint32_t stage = 0; stage < c.partition->stage_count; stage++) {
    struct pen_stage_cost *cost = &c.cost[stage];
    cost->forward = (double)draw(seed, 9);
    cost->backward_input = (double)draw(seed, 9);
    cost->backward_weight = (double)draw(seed, 9);
    cost->send = 0.5 * (double)draw(seed, 4);
    for (int k = 0; k < PEN_COLLECTIVES; k++)
      c.collective_cost[stage].cost[k] = (double)draw(seed, 7);
  }
  c.timing = pen_simulate_step(c.order, c.partition, &c.training, c.cost, c.collective_cost,
                               c.overlap, PEN_TRAIN, false);
  c.retiming = retiming_of(&c);
  return c;
}

/* 1f1b on one rank, with backwards split or whole. */
static struct retiming_case one_rank(bool split, uint32_t microbatches,
                                     struct pen_stage_cost cost) {
  struct retiming_case c = {.overlap = -1};
  c.order = make_order("1f1b", 1, split, 1, 1, microbatches, &c.partition);
  c.cost = pen_new(1, sizeof *c.cost);
  *c.cost = cost;
  c.timing = pen_simulate(c.order, c.partition, &c.training, c.cost, -1);
  c.retiming = retiming_of(&c);
  return c;
}

static double *ones(const struct pen_retiming *retiming) {
  double *factor = pen_new(retiming->factor_count, sizeof *factor);
  for (uint32_t i = 0; i < retiming->factor_count; i++) factor[i] = 1;
  return factor;
}

static void the_same_costs_give_the_same_makespan(void **state) {
  (void)state;
  uint64_t seed = 21;
  unsigned pairs = 0, collectives = 0;
  for (unsigned round = 0; round < 400; round++) {
    struct retiming_case c = random_case(&seed);
    pairs += c.overlap >= 0;
    collectives += c.timing->whole != NULL;
    double makespan = pen_retime(c.retiming, ones(c.retiming));
    if (makespan != c.timing->makespan)
      fail_msg("round %u: %g, not %g", round, makespan, c.timing->makespan);
    pen_free_all();
  }
  assert_true(pairs > 20 && collectives > 100);
}

/* Each rank's costs times its own factor, which the simulator can do too. */
static void other_costs_give_the_simulators_makespan(void **state) {
  (void)state;
  uint64_t seed = 22;
  unsigned changed = 0;
  for (unsigned round = 0; round < 200; round++) {
    struct retiming_case c = random_case(&seed);
    double *factor = ones(c.retiming), overlap = c.overlap >= 0 ? -1 : c.overlap;
    uint32_t stages = c.partition->stage_count, microbatches = c.partition->microbatch_count;
    if (c.overlap >= 0) continue;
    struct pen_stage_cost *cost = pen_new(stages, sizeof *cost);
    double *of_rank = pen_new(c.partition->rank_count, sizeof *of_rank);
    for (uint32_t rank = 0; rank < c.partition->rank_count; rank++)
      of_rank[rank] = 0.25 * (double)(1 + draw(&seed, 12));
    for (uint32_t stage = 0; stage < stages; stage++) {
      double times = of_rank[c.partition->rank_of[stage]];
      cost[stage] = c.cost[stage];
      cost[stage].forward *= times;
      cost[stage].backward_input *= times;
      cost[stage].backward_weight *= times;
      for (int kind = 0; kind < 3; kind++)
        for (uint32_t m = 0; m < microbatches; m++)
          factor[((uint32_t)kind * stages + stage) * microbatches + m] = times;
    }
    const struct pen_timing *whole = c.timing->whole;
    double wanted = pen_simulate_collectives(whole ? c.timing->whole_order : c.order, c.partition,
                                             &c.training, cost, c.collective_cost, overlap)
                        ->makespan;
    double makespan = pen_retime(c.retiming, factor);
    if (makespan != wanted) fail_msg("round %u: %g, not %g", round, makespan, wanted);
    changed += makespan != c.timing->makespan;
    pen_free_all();
  }
  assert_true(changed > 100);
}

/* One cost that rises by 1 delays the step by at most 1; on the busiest path of a single rank, by
 * just as much. */
static void each_action_has_its_own_factor(void **state) {
  (void)state;
  struct retiming_case c = one_rank(
      true, 5, (struct pen_stage_cost){.forward = 2, .backward_input = 4, .backward_weight = 8});
  assert_int_equal(c.retiming->factor_count, 16);
  for (uint32_t i = 0; i < 15; i++) {
    double *factor = ones(c.retiming);
    factor[i] = 3;
    assert_true(pen_retime(c.retiming, factor) == 70 + 2 * (2 << i / 5));
  }
}

/* Moments, and the correlation of numbers next to each other, of 1000 draws of 60 numbers: within
 * five standard errors. */
static void numbers_are_normal_and_independent(void **state) {
  (void)state;
  struct pen_partition *partition = make_partition(4, 1, 5, false);
  enum { NUMBERS = 60, DRAWS = 1000 };
  const struct pen_noise noise = {7, PEN_NOISE_ACTION};
  double z[NUMBERS + 1], before[NUMBERS + 1] = {0}, sum = 0, squares = 0, fourth = 0, beside = 0,
                                          along = 0, n = (double)NUMBERS * DRAWS,
                                          error = 5 / sqrt(n);
  for (uint64_t number = 0; number < DRAWS; number++) {
    pen_noise_draw(&noise, partition, number, z);
    assert_true(z[NUMBERS] == 0);
    for (int i = 0; i < NUMBERS; i++) {
      sum += z[i];
      squares += z[i] * z[i];
      fourth += pow(z[i], 4);
      beside += z[i] * z[(i + 1) % NUMBERS];
      along += z[i] * before[i];
      before[i] = z[i];
    }
  }
  assert_true(fabs(sum / n) < error);
  assert_true(fabs(squares / n - 1) < error * sqrt(2));
  assert_true(fabs(fourth / n - 3) < error * sqrt(96));
  assert_true(fabs(beside / n) < error && fabs(along / n) < error);
}

/* A number depends on seed, draw and place alone. */
static void numbers_are_counter_based(void **state) {
  (void)state;
  struct pen_partition *partition = make_partition(3, 2, 4, true);
  enum { NUMBERS = 3 * 6 * 4 };
  double one[NUMBERS + 1], other[NUMBERS + 1];
  struct pen_noise noise = {5, PEN_NOISE_ACTION};
  pen_noise_draw(&noise, partition, 3, one);
  pen_noise_draw(&noise, partition, 9, other);
  assert_memory_not_equal(one, other, sizeof one);
  pen_noise_draw(&noise, make_partition(3, 2, 4, false), 3, other);
  assert_memory_equal(one, other, sizeof one);
  noise.seed = 6;
  pen_noise_draw(&noise, partition, 3, other);
  for (int i = 0; i < NUMBERS; i++) assert_true(one[i] != other[i]);
  noise.kind = PEN_NOISE_RANK;
  pen_noise_draw(&noise, partition, 3, one);
  for (uint32_t i = 0; i < NUMBERS; i++)
    for (uint32_t j = 0; j < NUMBERS; j++)
      assert_int_equal(one[i] == one[j],
                       partition->rank_of[i / 4 % 6] == partition->rank_of[j / 4 % 6]);
}

static void quantiles_are_the_least_values_with_that_share(void **state) {
  (void)state;
  assert_int_equal(pen_quantile_index(0.5, 1000), 499);
  assert_int_equal(pen_quantile_index(0.99, 1000), 989);
  assert_int_equal(pen_quantile_index(0.99, 100), 98);
  assert_int_equal(pen_quantile_index(0.99, 10), 9);
  assert_int_equal(pen_quantile_index(0.99, 1), 0);
  double value[] = {3, -1, 2, 2};
  pen_sort_values(value, 4);
  assert_true(value[0] == -1 && value[1] == 2 && value[2] == 2 && value[3] == 3);
}

/* A rank alone has the makespan times its factor: log-normal, with quantiles in closed form. A
 * quantile of 1000 draws has a standard error of sqrt(p(1-p)/1000) over the density there. */
static void a_rank_alone_spreads_like_its_factor(void **state) {
  (void)state;
  struct retiming_case c = one_rank(
      false, 6, (struct pen_stage_cost){.forward = 1, .backward_input = 2, .backward_weight = 3});
  struct pen_spread spread[PEN_SPREADS];
  pen_spreads_of(c.retiming, c.partition, 1, spread);
  for (int i = 0; i < PEN_SPREADS; i++) {
    const struct pen_spread *row = &spread[i];
    assert_true(row->p50 <= row->p99);
    if (row->kind != PEN_NOISE_RANK) continue;
    double s = row->noise, z50 = log(row->p50 / 36) / s + s / 2,
           z99 = log(row->p99 / 36) / s + s / 2;
    if (!(fabs(z50) < 5 * 0.0396 && fabs(z99 - 2.3263) < 5 * 0.118))
      fail_msg("noise %g: %g and %g standard deviations", s, z50, z99);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_costs_give_the_same_makespan),
      cmocka_unit_test(other_costs_give_the_simulators_makespan),
      cmocka_unit_test(each_action_has_its_own_factor),
      cmocka_unit_test(numbers_are_normal_and_independent),
      cmocka_unit_test(numbers_are_counter_based),
      cmocka_unit_test(quantiles_are_the_least_values_with_that_share),
      cmocka_unit_test(a_rank_alone_spreads_like_its_factor),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
