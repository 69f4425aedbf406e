/* percentile.c: the timeline in many draws against one pass over the order for each draw, and the
 * search for the least 99th percentile. */
#include <math.h>
#include <stdio.h>

#include "gen/search/anneal.h"
#include "gen/search/list_schedule.h"
#include "gen/search/percentile.h"
#include "gen/search/search.h"
#include "gen/timing/robustness.h"
#include "tests/support/plans.h"

enum { LANES = PEN_RETIMING_LANES };

static struct pen_stage_cost *drawn_costs(uint32_t stages, uint64_t *seed) {
  struct pen_stage_cost *cost = pen_new(stages, sizeof *cost);
  for (uint32_t stage = 0; stage < stages; stage++) {
    cost[stage].forward = 1 + (double)draw(seed, 5);
    cost[stage].backward_input = 1 + (double)draw(seed, 5);
    cost[stage].backward_weight = (double)draw(seed, 5);
    cost[stage].shared = draw(seed, 2) ? 0.5 * cost[stage].backward_weight : 0;
    cost[stage].send = 0.25 * (double)draw(seed, 5);
  }
  return cost;
}

/* The same estimate from the order of the timeline's lists. */
static double estimate(const struct pen_search_timeline *timeline, const float (*factor)[LANES]) {
  const struct pen_search_problem *c = timeline->search;
  struct pen_order *order = pen_search_order(c, timeline->list);
  const struct pen_timing *timing = pen_search_time(c, order, -1);
  struct pen_retiming *retiming =
      pen_retiming(order, timing, c->partition, c->training, c->stage_cost, c->collective_cost, -1);
  double makespan[LANES], sum = 0, squares = 0,
                          *of_lane = pen_new(retiming->factor_count, sizeof *of_lane);
  assert_int_equal(retiming->factor_count, c->cell_count + 1);
  for (int lane = 0; lane < LANES; lane++) {
    for (uint32_t cell = 0; cell < c->cell_count; cell++) of_lane[cell] = factor[cell][lane];
    makespan[lane] = pen_retime(retiming, of_lane);
    sum += makespan[lane];
  }
  for (int lane = 0; lane < LANES; lane++) squares += pow(makespan[lane] - sum / LANES, 2);
  return sum / LANES + 2.326 * sqrt(squares / (LANES - 1));
}

static float (*random_factors(uint32_t count, uint64_t *seed))[LANES] {
  float(*factor)[LANES] = pen_new(count, sizeof *factor);
  for (uint32_t cell = 0; cell < count; cell++)
    for (int lane = 0; lane < LANES; lane++)
      factor[cell][lane] = 0.5f + 0.01f * (float)draw(seed, 100);
  return factor;
}

/* Random moves, kept and undone; with B, tails and several stages a rank. */
static void moves_keep_the_times_of_all_draws(void **state) {
  (void)state;
  uint64_t seed = 31, kept = 0, undone = 0;
  for (unsigned round = 0; round < 25; round++) {
    uint32_t ranks = 1 + (uint32_t)draw(&seed, 4), stages = 1 + (uint32_t)draw(&seed, 3);
    struct pen_partition *partition =
        make_partition(ranks, stages, 2 + (uint32_t)draw(&seed, 6), draw(&seed, 2));
    const struct pen_training training = {.adds_tied_gradient = draw(&seed, 2)};
    double *weight = pen_new(partition->stage_count, sizeof *weight);
    const struct pen_search_problem *c = pen_search_problem(
        partition, &training, drawn_costs(partition->stage_count, &seed), NULL, -1,
        pen_budget_live(ranks, partition->stage_count, stages + 4, 1, weight), false);
    struct pen_search_timeline *timeline = pen_search_timeline(c);
    const float(*factor)[LANES] = (const float(*)[LANES])random_factors(c->cell_count, &seed);
    struct pen_search_noisy *noisy = pen_search_noisy(timeline, factor);
    const struct pen_search_rule rule = {
        .flight = 100, .patience = 0.5, .backward_first = true, .whole = round % 2 == 0};
    uint32_t *list = pen_new((size_t)ranks * c->count, sizeof *list);
    struct pen_search_value value;
    assert_true(pen_search_build(pen_search_builder(c), &rule, list));
    assert_true(pen_search_set(timeline, list, &value));
    for (unsigned n = 0; n < 200; n++) {
      struct pen_search_move move;
      if (n > 0 && (!pen_search_draw_move(timeline, &seed, &move) ||
                    !pen_search_try(timeline, &move, INFINITY, &value)))
        continue;
      double found = pen_search_noisy_try(noisy), wanted = estimate(timeline, factor);
      if (!(fabs(found / wanted - 1) < 1e-5))
        fail_msg("round %u, move %u: %g, not %g", round, n, found, wanted);
      if (n > 0 && draw(&seed, 2)) {
        pen_search_undo(timeline, &move);
        undone++;
        continue;
      }
      pen_search_keep(timeline);
      pen_search_noisy_keep(noisy);
      kept++;
    }
    pen_free_all();
  }
  assert_true(kept > 500 && undone > 500);
}

/* ---- the search ---- */

struct p99_case {
  struct pen_topology *topology;
  struct pen_partition *partition;
  struct pen_stage_cost *cost;
};

static struct p99_case random_case(uint64_t *seed) {
  uint32_t ranks = 2 + (uint32_t)draw(seed, 3), stages = 1 + (uint32_t)draw(seed, 2);
  struct p99_case c = {make_topology("search", 0, false),
                       make_partition(ranks, stages, 3 + (uint32_t)draw(seed, 8), false), NULL};
  c.cost = drawn_costs(c.partition->stage_count, seed);
  c.topology->pipeline_placement = PEN_PLACEMENT_LOOP;
  c.topology->has_pipeline_live_limit = draw(seed, 2);
  c.topology->pipeline_live_limit = ranks + stages;
  c.topology->costs_live_backward = 1;
  return c;
}

static struct pen_search *search_for(const struct p99_case *c, enum pen_objective objective,
                                     uint64_t seconds, uint64_t seed) {
  const struct pen_search_effort effort = {seconds, seed};
  c->topology->pipeline_objective = objective;
  return search_order(c->topology, c->partition, c->cost, &effort);
}

/* No named schedule within the limit is better, nor is the result of a smaller effort. */
static void the_percentile_is_the_least_of_all(void **state) {
  (void)state;
  uint64_t seed = 32;
  for (unsigned round = 0; round < 3; round++) {
    const struct p99_case c = random_case(&seed);
    double last = INFINITY;
    for (uint64_t seconds = 0; seconds <= 2; seconds++) {
      struct pen_search *search = search_for(&c, PEN_OBJECTIVE_P99, seconds, round);
      assert_true(search->p99 > 0 && search->p99 <= last);
      assert_true(search->p99 >= search->lower_bound && search->makespan >= search->lower_bound);
      assert_true(search->gap == (search->p99 - search->lower_bound) / search->lower_bound);
      for (size_t i = 0; i < search->named_count; i++)
        assert_true(!search->named[i].fits || search->p99 <= search->named[i].p99);
      for (size_t i = 1; i < search->named_count; i++)
        assert_true(search->named[i - 1].p99 <= search->named[i].p99);
      last = search->p99;
    }
    pen_free_all();
  }
}

static void the_same_seed_gives_the_same_robust_order(void **state) {
  (void)state;
  uint64_t seed = 33;
  const struct p99_case c = random_case(&seed);
  struct pen_search *one = search_for(&c, PEN_OBJECTIVE_P99, 0, 5),
                    *other = search_for(&c, PEN_OBJECTIVE_P99, 0, 5);
  assert_string_equal(order_text(one->order), order_text(other->order));
  assert_true(one->p99 == other->p99);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moves_keep_the_times_of_all_draws),
      cmocka_unit_test(the_percentile_is_the_least_of_all),
      cmocka_unit_test(the_same_seed_gives_the_same_robust_order),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
