/* search_tiny.c: the schedule search against all orders of tiny cases: its result is the best, and
 * no order beats a bound. */
#include <math.h>
#include <stdio.h>

#include "gen/partition/training.h"
#include "gen/search/list_schedule.h"
#include "gen/search/search.h"
#include "gen/timing/lower_bound.h"
#include "gen/timing/memory_budget.h"
#include "tests/support/search_cases.h"

/* Tries every order in which each rank runs F before I before W of a stage and microbatch, or B for
 * an I and a W. */
struct trial_of_all {
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_budget *budget;
  struct pen_order *order, *joined;
  bool rising;                     /* only orders in which each stage's microbatches rise */
  double makespan, span;           /* the least */
  double makespan_then, span_then; /* the least of those with the least span, makespan */
  uint64_t orders;
};

static bool may_follow(const struct trial_of_all *all, uint32_t rank,
                       const struct pen_compute *next, uint32_t before) {
  static const int rank_of_kind[] = {[PEN_F] = 0, [PEN_I] = 1, [PEN_W] = 2};
  uint32_t ahead = 0, lower = 0;
  for (uint32_t i = 0; i < before; i++) {
    const struct pen_compute *a = &all->order->action[rank][i];
    if (a->stage != next->stage) continue;
    if (a->microbatch == next->microbatch && rank_of_kind[a->kind] < rank_of_kind[next->kind])
      ahead++;
    if (a->kind == next->kind && a->microbatch < next->microbatch) lower++;
  }
  return ahead == (uint32_t)rank_of_kind[next->kind] && (!all->rising || lower == next->microbatch);
}

/* The least of `first`, and of those orders the least of `then`. */
static void least(double first, double then, double *least_first, double *least_then) {
  if (first > *least_first + 1e-9) return;
  *least_then = first < *least_first - 1e-9 ? then : fmin(*least_then, then);
  *least_first = fmin(*least_first, first);
}

static bool time_one(struct trial_of_all *all, const struct pen_order *order) {
  if (!pen_budget_holds(all->budget, order)) return false;
  struct pen_timing *timing =
      pen_simulate(order, all->partition, &pen_training_none, all->cost, -1);
  all->orders++;
  if (!timing->complete) return true;
  least(timing->makespan, timing->span, &all->makespan, &all->span_then);
  least(timing->span, timing->makespan, &all->span, &all->makespan_then);
  return true;
}

/* The order with those of its I made a B with the W after it whose bit is set in `joins`. Returns
 * how many there are to set. */
static unsigned join(const struct pen_order *order, unsigned joins, struct pen_order *joined) {
  unsigned pairs = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    joined->count[rank] = 0;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      struct pen_compute a = order->action[rank][i],
                         next = i + 1 < order->count[rank] ? order->action[rank][i + 1] : a;
      bool pair = a.kind == PEN_I && next.kind == PEN_W && a.stage == next.stage &&
                  a.microbatch == next.microbatch;
      if (pair && joins >> pairs++ & 1) {
        a.kind = PEN_B;
        i++;
      }
      joined->action[rank][joined->count[rank]++] = a;
    }
  }
  return pairs;
}

/* An order, and where that holds too much, or a whole backward is shorter, all that it can be with
 * some of its backwards whole. */
static void time_all(struct trial_of_all *all) {
  if (time_one(all, all->order) && all->cost[all->partition->stage_count - 1].shared == 0) return;
  unsigned pairs = join(all->order, 0, all->joined);
  for (unsigned joins = 1; joins < 1u << pairs; joins++) {
    join(all->order, joins, all->joined);
    time_one(all, all->joined);
  }
}

static void try_all(struct trial_of_all *all, uint32_t rank, uint32_t fixed) {
  struct pen_order *order = all->order;
  if (rank == order->rank_count) {
    time_all(all);
    return;
  }
  if (fixed == order->count[rank]) {
    try_all(all, rank + 1, 0);
    return;
  }
  struct pen_compute *action = order->action[rank];
  for (uint32_t index = fixed; index < order->count[rank]; index++) {
    struct pen_compute moved = action[index];
    if (!may_follow(all, rank, &moved, fixed)) continue;
    memmove(action + fixed + 1, action + fixed, (index - fixed) * sizeof moved);
    action[fixed] = moved;
    try_all(all, rank, fixed + 1);
    memmove(action + fixed, action + fixed + 1, (index - fixed) * sizeof moved);
    action[index] = moved;
  }
}

static const struct tiny {
  uint32_t ranks, stages, microbatches;
  bool zigzag, rising;
} tinies[] = {{2, 1, 2, false, false}, {2, 1, 3, false, true},  {3, 1, 2, false, true},
              {2, 2, 1, true, false},  {2, 2, 1, false, false}, {1, 2, 2, false, true},
              {1, 1, 3, false, false}};

/* No order beats a bound, and the search finds the best order, for both objectives, the other
 * breaking ties, with and without a limit. */
static void tiny_cases_are_solved(void **state) {
  (void)state;
  uint64_t seed = 20231130, hosts = 20231201;
  unsigned tight[2] = {0, 0}, total = 0;
  for (unsigned round = 0; round < 70; round++) {
    const struct tiny *tiny = &tinies[round % (sizeof tinies / sizeof *tinies)];
    struct pen_partition *partition =
        make_partition(tiny->ranks, tiny->stages, tiny->microbatches, tiny->zigzag);
    struct pen_stage_cost *cost = random_costs(partition, &seed, 1 + draw(&seed, 6));
    uint32_t host[3] = {0, (uint32_t)draw(&hosts, 2), (uint32_t)draw(&hosts, 2)};
    for (uint32_t stage = 0; stage < partition->stage_count; stage++)
      cost[stage].send_host = cost[stage].send + 0.25 * (double)draw(&hosts, 6);
    if (round % 4 > 1) partition->host_of = host;
    double weight = 0.25 * (double)draw(&seed, 9), most = tiny->stages * tiny->microbatches,
           backward = random_live_backward(&seed);
    double limit =
        round % 2
            ? fmax(0.25, backward * tiny->stages + 0.25 * (double)draw(&seed, (uint64_t)(4 * most)))
            : 0;
    double weights[] = {weight, weight, weight, weight};
    struct pen_budget *budget =
        limit > 0 ? pen_budget_live(tiny->ranks, partition->stage_count, limit, backward, weights)
                  : pen_budget_none(tiny->ranks, partition->stage_count);
    struct pen_budget *none = pen_budget_none(tiny->ranks, partition->stage_count);
    const struct pen_search_problem *c =
        pen_search_problem(partition, &pen_training_none, cost, NULL, -1, none, false);
    uint32_t *list = pen_new((size_t)c->rank_count * c->count, sizeof *list);
    struct pen_search_rule rule = {100, 0, 1, false, false, false, NULL, NULL};
    assert_true(pen_search_build(pen_search_builder(c), &rule, list));
    bool shares = cost[partition->stage_count - 1].shared >
                  0; /* then W out of turn may pay: search.c does without */
    struct trial_of_all all = {partition,
                               cost,
                               budget,
                               pen_search_order(c, list),
                               pen_search_order(c, list),
                               tiny->rising || shares,
                               INFINITY,
                               INFINITY,
                               INFINITY,
                               INFINITY,
                               0};
    try_all(&all, 0, 0);
    assert_true(isfinite(all.span));
    const struct pen_bounds bounds =
        pen_bounds_of(all.order, partition, &pen_training_none, c->least_cost, NULL, -1, budget);
    if (all.makespan < bounds.makespan.greatest - 1e-9 || all.span < bounds.span.greatest - 1e-9)
      fail_msg("round %u: of %lu orders the best take %g and %g, the bounds are %g and %g", round,
               (unsigned long)all.orders, all.makespan, all.span, bounds.makespan.greatest,
               bounds.span.greatest);
    for (int by_span = 0; by_span < 2; by_span++) {
      struct pen_topology *topology = search_topology(
          by_span ? PEN_OBJECTIVE_SPAN : PEN_OBJECTIVE_MAKESPAN, limit, backward, weight);
      const struct pen_search *search =
          search_placed(topology, partition, cost, tiny->zigzag, 0, round);
      double makespan = by_span ? all.makespan_then : all.makespan,
             span = by_span ? all.span : all.span_then;
      if (fabs(search->makespan - makespan) > 1e-9 || fabs(search->span - span) > 1e-9)
        fail_msg("round %u: by %s found makespan %g, span %g; the best are %g and %g", round,
                 pen_enum_text(pen_enum_objective, (int)search->objective), search->makespan,
                 search->span, makespan, span);
      assert_true(pen_budget_holds(budget, search->order));
      tight[by_span] += search->gap == 0;
      total += !by_span;
    }
    pen_free_all();
  }
  print_message("# of %u tiny cases the bound is met in %u by makespan, %u by span\n", total,
                tight[0], tight[1]);
  assert_true(tight[0] > total / 2 && tight[1] > total / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiny_cases_are_solved),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
