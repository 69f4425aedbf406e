/* search.c: the schedule search against named schedules, with limits; its objectives; the same
 * result again. */
#include <math.h>
#include <stdio.h>

#include "gen/partition/training.h"
#include "gen/schedule/schedule.h"
#include "gen/search/search.h"
#include "gen/timing/memory_budget.h"
#include "gen/topology/schedule_table.h"
#include "tests/support/search_cases.h"

static struct pen_topology *named_topology(const struct pen_topology *base, const char *schedule,
                                           int warmup, bool zero_bubble) {
  struct pen_topology *topology = make_topology(schedule, warmup, zero_bubble);
  topology->has_costs_overlap = base->has_costs_overlap;
  topology->costs_overlap = base->costs_overlap;
  return topology;
}

static const struct {
  const char *name;
  int warmup;
  bool zero_bubble;
} named[] = {{"gpipe", 0, false},         {"looped_bfs", 0, false},  {"1f1b", 1, false},
             {"1f1b", 2, false},          {"1f1b", 1, true},         {"1f1b", 2, true},
             {"zb_h1", 0, false},         {"zb_h2", 0, false},       {"interleaved", 0, true},
             {"zero_bubble_v", 0, false}, {"dual_pipe_v", 0, false}, {"v_half", 0, false},
             {"v_min", 0, false}};

/* The order of row `index` of `named`, or null where it does not suit the placement or the numbers.
 */
static struct pen_order *named_order(const struct pen_topology *topology,
                                     const struct pen_partition *partition, bool zigzag,
                                     size_t index) {
  const struct pen_schedule *schedule = pen_schedule_of(schedule_named(named[index].name));
  uint32_t ranks = partition->rank_count, stages = partition->stages_per_rank;
  bool placed =
      stages == 1 || !schedule->strict || zigzag == (schedule->placement == PEN_PLACEMENT_V);
  if (stages < schedule->stages_minimum || stages > schedule->stages_maximum || !placed)
    return NULL;
  if (!pen_schedule_suits(schedule, ranks, stages, partition->microbatch_count)) return NULL;
  return pen_compose(
      named_topology(topology, named[index].name, named[index].warmup, named[index].zero_bubble),
      partition);
}

/* The least limit within which an order keeps, to 2^-20. */
static double peak_of(const struct pen_order *order, double backward, const double *weight,
                      uint32_t stage_count) {
  double low = 0, high = 1e4;
  while (high - low > 0x1p-20) {
    double middle = (low + high) / 2;
    if (pen_budget_holds(pen_budget_live(order->rank_count, stage_count, middle, backward, weight),
                         order))
      high = middle;
    else
      low = middle;
  }
  return high;
}

/* One of three: none, what a named schedule needs exactly, any. */
static double draw_limit(uint64_t *seed, const struct pen_topology *topology,
                         const struct pen_partition *partition, bool zigzag, const double *weight) {
  uint64_t way = draw(seed, 3);
  struct pen_order *order =
      named_order(topology, partition, zigzag, draw(seed, sizeof named / sizeof *named));
  if (way == 0) return 0;
  double backward = topology->costs_live_backward;
  if (way == 1 && order) return peak_of(order, backward, weight, partition->stage_count);
  return backward * partition->stages_per_rank +
         0.25 * (double)draw(seed, 12 * partition->stage_count);
}

/* By its objective the search is never worse than any named schedule of the same case that keeps
 * within the limit. */
static void no_named_schedule_is_better(void **state) {
  (void)state;
  uint64_t seed = 99;
  unsigned compared = 0;
  for (unsigned round = 0; round < 40; round++) {
    uint32_t ranks = 1 + (uint32_t)draw(&seed, 5),
             stages = 1 + (uint32_t)draw(&seed, round % 4 == 3 ? 4 : 2);
    bool zigzag = stages == 2 && draw(&seed, 2);
    struct pen_partition *partition =
        make_partition(ranks, stages, ranks * (1 + (uint32_t)draw(&seed, 3)), zigzag);
    struct pen_stage_cost *cost = random_costs(partition, &seed, 1 + draw(&seed, 6));
    double weight = 0.5 * (double)draw(&seed, 6), backward = random_live_backward(&seed),
           weights[64];
    for (int i = 0; i < 64; i++) weights[i] = weight;
    struct pen_topology *topology = search_topology(
        draw(&seed, 2) ? PEN_OBJECTIVE_SPAN : PEN_OBJECTIVE_MAKESPAN, 0, backward, weight);
    topology->has_costs_overlap = draw(&seed, 2);
    topology->costs_overlap = 2;
    double limit = draw_limit(&seed, topology, partition, zigzag, weights);
    topology->has_pipeline_live_limit = limit > 0;
    topology->pipeline_live_limit = limit;
    struct pen_search *search = search_placed(topology, partition, cost, zigzag, 0, round);
    struct pen_budget *budget =
        limit > 0 ? pen_budget_live(ranks, partition->stage_count, limit, backward, weights)
                  : pen_budget_none(ranks, partition->stage_count);
    double overlap = topology->has_costs_overlap ? topology->costs_overlap : -1;
    struct pen_timing *own =
        pen_simulate(search->order, partition, &pen_training_none, cost, overlap);
    assert_true(own->complete && pen_budget_holds(budget, search->order));
    if (fabs(own->makespan - search->makespan) > 1e-9 || fabs(own->span - search->span) > 1e-9)
      fail_msg("round %u: the search says %g and %g, the simulator %g and %g", round,
               search->makespan, search->span, own->makespan, own->span);
    if (search_goal(topology, own) < search->lower_bound - 1e-9)
      fail_msg("round %u: %g is below the bound", round, search_goal(topology, own));
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
      struct pen_order *order = named_order(topology, partition, zigzag, i);
      if (!order || !pen_budget_holds(budget, order)) continue;
      double other =
          search_goal(topology, pen_simulate(order, partition, &pen_training_none, cost, overlap));
      compared++;
      if (search_goal(topology, own) > other + 1e-9)
        fail_msg("round %u: %s %g, but %s %g (limit %g, live_backward %g)", round,
                 pen_enum_text(pen_enum_objective, (int)topology->pipeline_objective),
                 search_goal(topology, own), named[i].name, other, limit, backward);
    }
    pen_free_all();
  }
  print_message("# %u comparisons\n", compared);
  assert_true(compared > 100);
}

/* Neither objective is to be had for less of the other: where the two searches come to the same
 * makespan, their spans are the same, and the other way about; and each is at least as good by its
 * own. With two stages a rank both placements are open. */
static void each_objective_breaks_the_others_ties(void **state) {
  (void)state;
  uint64_t seed = 31;
  unsigned ties = 0, open = 0;
  for (unsigned round = 0; round < 12; round++) {
    uint32_t ranks = 2 + (uint32_t)draw(&seed, 4), stages = 1 + round % 2;
    struct pen_partition *partition =
        make_partition(ranks, stages, ranks * (1 + (uint32_t)draw(&seed, 2)), false);
    struct pen_stage_cost *cost = random_costs(partition, &seed, 1 + draw(&seed, 4));
    double backward = random_live_backward(&seed),
           limit = backward * stages + 0.5 * (double)(1 + draw(&seed, 4 * ranks)), weight = 0.5;
    double makespan[2], span[2];
    for (int by_span = 0; by_span < 2; by_span++) {
      struct pen_topology *topology = search_topology(
          by_span ? PEN_OBJECTIVE_SPAN : PEN_OBJECTIVE_MAKESPAN, limit, backward, weight);
      struct pen_search_effort effort = {0, round};
      const struct pen_search *search = search_order(topology, partition, cost, &effort);
      makespan[by_span] = search->makespan;
      span[by_span] = search->span;
      open += search->side[0] && search->side[1];
    }
    bool same_makespan = fabs(makespan[0] - makespan[1]) <= 1e-9,
         same_span = fabs(span[0] - span[1]) <= 1e-9;
    if (makespan[0] > makespan[1] + 1e-9 || span[1] > span[0] + 1e-9 || same_makespan != same_span)
      fail_msg("round %u: by makespan %g and span %g, by span %g and %g", round, makespan[0],
               span[0], makespan[1], span[1]);
    ties += same_makespan;
    pen_free_all();
  }
  print_message("# %u ties of 12\n", ties);
  assert_true(ties > 3 && open == 12);
}

static void the_same_seed_gives_the_same_order(void **state) {
  (void)state;
  char *text[3];
  for (int run = 0; run < 3; run++) {
    uint64_t seed = 5;
    struct pen_partition *partition = make_partition(4, 2, 12, false);
    struct pen_stage_cost *cost = random_costs(partition, &seed, 7);
    struct pen_topology *topology = search_topology(PEN_OBJECTIVE_MAKESPAN, 5, 1, 0.5);
    struct pen_search_effort effort = {1, run == 2};
    struct pen_search *search =
        search_order(topology, partition, cost, &effort); /* both placements are open */
    text[run] = order_text(search->order);
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
  for (int run = 0; run < 3; run++) free(text[run]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_named_schedule_is_better),
      cmocka_unit_test(each_objective_breaks_the_others_ties),
      cmocka_unit_test(the_same_seed_gives_the_same_order),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
