/* search.c: the schedule search: its timeline against the simulator, optimal results of tiny cases,
 * bounds, named schedules, limits, and published cases. */
#include <math.h>
#include <stdio.h>

#include "gen/search/anneal.h"
#include "gen/search/list_schedule.h"
#include "gen/search/search.h"
#include "gen/timing/lower_bound.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/schedule_table.h"
#include "tests/support/plans.h"

/* ---- cases ---- */

static struct pen_stage_cost *random_costs(const struct pen_partition *partition, uint64_t *seed,
                                           uint64_t most) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1 + (double)draw(seed, most),
                                          1 + (double)draw(seed, most),
                                          (double)draw(seed, most),
                                          0.25 * (double)draw(seed, most),
                                          0,
                                          0,
                                          {0}};
  uint32_t last = partition->stage_count - 1; /* the one that may have a head by chunks */
  if (most % 2 == 0) cost[last].shared = 0.5 * cost[last].backward_weight;
  return cost;
}

/* costs.live_backward: nothing, less than, as much as, and more than the limit's unit. */
static double random_backward(uint64_t *seed) {
  static const double backwards[] = {0, 0.5, 1, 2};
  return backwards[draw(seed, sizeof backwards / sizeof *backwards)];
}

/* What the search asks of a topology. live_limit 0: none. */
static struct pen_topology *search_topology(const char *objective, double limit, double backward,
                                            double weight) {
  struct pen_topology *topology = make_topology("search", 0, false);
  topology->pipeline_objective = objective;
  topology->pipeline_placement = "loop";
  topology->has_pipeline_live_limit = limit > 0;
  topology->pipeline_live_limit = limit;
  topology->costs_live_backward = backward;
  topology->has_costs_live_weight = true;
  topology->costs_live_weight = weight;
  return topology;
}

/* Searches on the partition's own placement. */
static struct pen_search *run_search(struct pen_topology *topology, struct pen_partition *partition,
                                     const struct pen_stage_cost *cost, bool zigzag,
                                     uint64_t seconds, uint64_t seed) {
  struct pen_search_effort effort = {seconds, seed};
  topology->has_pipeline_placement = true;
  topology->pipeline_placement = zigzag ? "v" : "loop";
  return search_order(topology, partition, cost, &effort);
}

static double goal_of(const struct pen_topology *topology, const struct pen_timing *timing) {
  return strcmp(topology->pipeline_objective, "span") ? timing->makespan : timing->span;
}

/* ---- the board ---- */

/* A move of one action, or one that joins or parts I and W, of all that may be. False: none. */
static bool random_move(const struct pen_search_timeline *board, uint64_t *seed,
                        struct pen_search_move *move) {
  const struct pen_search_problem *c = board->search;
  uint32_t lowest, highest, stage = (uint32_t)draw(seed, c->stage_count),
                            microbatch = (uint32_t)draw(seed, c->microbatch_count);
  bool splits = draw(seed, 2);
  move->cell =
      pen_search_cell_of(c, splits ? PEN_PROGRAM_W : (uint32_t)draw(seed, 3), stage, microbatch);
  move->rank = c->partition->rank_of[stage];
  move->from = board->place[move->cell];
  pen_search_reach(board, move->cell, &lowest, &highest);
  if (move->from != PEN_NONE && (lowest > move->from || highest < move->from))
    fail_msg("an action at %u may stand from %u to %u", move->from, lowest, highest);
  move->to = lowest + (uint32_t)draw(seed, highest - lowest + 1);
  if (move->from == PEN_NONE) return c->whole[stage] && splits;
  if (splits && draw(seed, 2)) move->to = PEN_NONE;
  return move->to == PEN_NONE ? pen_search_may_leave(board, move->cell) : move->to != move->from;
}

/* The board's lists say what its order says, and weight gradients rise. */
static void check_lists(const struct pen_search_timeline *board, const struct pen_order *order) {
  const struct pen_search_problem *c = board->search;
  uint32_t *next = pen_new(c->stage_count, sizeof *next),
           *list = pen_new((size_t)c->rank_count * c->count, sizeof *list);
  for (uint32_t r = 0; r < c->rank_count; r++)
    for (uint32_t i = 0; i < order->count[r]; i++) {
      const struct pen_compute *a = &order->action[r][i];
      if (a->kind == PEN_W || a->kind == PEN_B) assert_int_equal(next[a->stage]++, a->microbatch);
    }
  for (uint32_t stage = 0; stage < c->stage_count; stage++)
    assert_int_equal(next[stage], c->microbatch_count);
  pen_search_lists(c, order, list);
  assert_memory_equal(list, board->list, (size_t)c->rank_count * c->count * sizeof *list);
}

/* Random moves, kept and taken back: the board's times are the simulator's, and what it refuses is
 * too much or never ends. */
static void moves_keep_the_simulators_times(void **state) {
  (void)state;
  uint64_t seed = 4711, kept = 0, full = 0, joined = 0;
  for (unsigned round = 0; round < 40; round++) {
    uint32_t ranks = 1 + (uint32_t)draw(&seed, 5), stages = 1 + (uint32_t)draw(&seed, 3);
    struct pen_partition *partition =
        make_partition(ranks, stages, 2 + (uint32_t)draw(&seed, 8), draw(&seed, 2));
    struct pen_stage_cost *cost = random_costs(partition, &seed, 1 + draw(&seed, 5));
    if (round % 4 == 0) cost[draw(&seed, partition->stage_count)] = (struct pen_stage_cost){0};
    double weight[16];
    for (int i = 0; i < 16; i++) weight[i] = 0.25 * (double)draw(&seed, 6);
    struct pen_budget *budget = pen_budget_live(ranks, partition->stage_count,
                                                (double)(stages + 2 + draw(&seed, 6)), 1, weight);
    const struct pen_search_problem *c =
        pen_search_problem(partition, &pen_training_none, cost, NULL, -1, budget, round % 2);
    struct pen_search_timeline *board = pen_search_timeline(c);
    struct pen_search_rule rule = {100, 0, 0.5, true, false, round % 3 == 0, NULL, NULL};
    uint32_t *list = pen_new((size_t)ranks * c->count, sizeof *list);
    struct pen_search_value value;
    assert_true(pen_search_build(pen_search_builder(c), &rule, list));
    assert_true(pen_search_set(board, list, &value));
    for (unsigned n = 0; n < 400; n++) {
      struct pen_search_move move;
      if (!random_move(board, &seed, &move)) continue;
      if (!pen_search_try(board, &move, INFINITY, &value)) {
        full++;
        continue;
      }
      if (draw(&seed, 3) == 0)
        pen_search_undo(board, &move);
      else
        pen_search_keep(board), kept++, joined += move.to == PEN_NONE;
      struct pen_order *order = pen_search_order(c, board->list);
      check_lists(board, order);
      struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
      assert_true(timing->complete);
      if (!pen_budget_holds(budget, order))
        fail_msg("round %u, move %u: the order holds too much", round, n);
      for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < order->count[r]; i++)
          if (fabs(board->times[board->list[r * c->count + i]].start - timing->start[r][i]) > 1e-9)
            fail_msg("round %u, move %u: rank %u, action %u starts at %g, simulated %g", round, n,
                     r, i, board->times[board->list[r * c->count + i]].start, timing->start[r][i]);
    }
    pen_free_all();
  }
  print_message("# %lu moves kept, %lu of them made a B; %lu refused\n", (unsigned long)kept,
                (unsigned long)joined, (unsigned long)full);
  assert_true(kept > 1000 && full > 100 && joined > 100);
}

/* ---- all orders of tiny cases ---- */

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
           backward = random_backward(&seed);
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
      struct pen_topology *topology =
          search_topology(by_span ? "span" : "makespan", limit, backward, weight);
      const struct pen_search *search =
          run_search(topology, partition, cost, tiny->zigzag, 0, round);
      double makespan = by_span ? all.makespan_then : all.makespan,
             span = by_span ? all.span : all.span_then;
      if (fabs(search->makespan - makespan) > 1e-9 || fabs(search->span - span) > 1e-9)
        fail_msg("round %u: by %s found makespan %g, span %g; the best are %g and %g", round,
                 search->objective, search->makespan, search->span, makespan, span);
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

/* ---- named schedules, limits, the same result again ---- */

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
  const struct pen_schedule *schedule = pen_schedule_of(named[index].name);
  uint32_t ranks = partition->rank_count, stages = partition->stages_per_rank;
  bool placed = stages == 1 || !schedule->strict || zigzag == !strcmp(schedule->placement, "v");
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
    double weight = 0.5 * (double)draw(&seed, 6), backward = random_backward(&seed), weights[64];
    for (int i = 0; i < 64; i++) weights[i] = weight;
    struct pen_topology *topology =
        search_topology(draw(&seed, 2) ? "span" : "makespan", 0, backward, weight);
    topology->has_costs_overlap = draw(&seed, 2);
    topology->costs_overlap = 2;
    double limit = draw_limit(&seed, topology, partition, zigzag, weights);
    topology->has_pipeline_live_limit = limit > 0;
    topology->pipeline_live_limit = limit;
    struct pen_search *search = run_search(topology, partition, cost, zigzag, 0, round);
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
    if (goal_of(topology, own) < search->lower_bound - 1e-9)
      fail_msg("round %u: %g is below the bound", round, goal_of(topology, own));
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
      struct pen_order *order = named_order(topology, partition, zigzag, i);
      if (!order || !pen_budget_holds(budget, order)) continue;
      double other =
          goal_of(topology, pen_simulate(order, partition, &pen_training_none, cost, overlap));
      compared++;
      if (goal_of(topology, own) > other + 1e-9)
        fail_msg("round %u: %s %g, but %s %g (limit %g, live_backward %g)", round,
                 topology->pipeline_objective, goal_of(topology, own), named[i].name, other, limit,
                 backward);
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
    double backward = random_backward(&seed),
           limit = backward * stages + 0.5 * (double)(1 + draw(&seed, 4 * ranks)), weight = 0.5;
    double makespan[2], span[2];
    for (int by_span = 0; by_span < 2; by_span++) {
      struct pen_topology *topology =
          search_topology(by_span ? "span" : "makespan", limit, backward, weight);
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
    struct pen_topology *topology = search_topology("makespan", 5, 1, 0.5);
    struct pen_search_effort effort = {1, run == 2};
    struct pen_search *search =
        search_order(topology, partition, cost, &effort); /* both placements are open */
    text[run] = order_text(search->order);
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
  for (int run = 0; run < 3; run++) free(text[run]);
}

/* ---- published cases ---- */

/* Zero Bubble (arXiv 2401.10241), costs of table 9 as in zb_table5.csv; the limit in microbatches
 * is that many times p. `most` is the bubble that we reach; the paper's heuristic gives .0719,
 * .0827 and .0029. */
static const struct {
  const char *model;
  uint32_t microbatches;
  double limit, weight, most;
} published[] = {{"1.5B", 24, 1.5, 0.366, 0.05237},
                 {"1.5B", 32, 1.25, 0.366, 0.07348},
                 {"6.2B", 24, 2, 0.432, 0.00124}};

/* A row of zb_table5.csv. heuristic: the bubbles of the paper's own search, at limits of p and 2 p.
 */
struct row {
  char model[16];
  unsigned ranks, microbatches;
  struct pen_stage_cost cost;
  double heuristic[2];
};

static bool next_row(FILE *file, struct row *row) {
  char line[256];
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "%15[^,],%u,%u,%lf,%lf,%lf,%lf,%*u,%*f,%*f,%*f,%*f,%lf,%lf", row->model,
               &row->ranks, &row->microbatches, &row->cost.forward, &row->cost.backward_input,
               &row->cost.backward_weight, &row->cost.send, &row->heuristic[0],
               &row->heuristic[1]) == 9)
      return true;
  return false;
}

static FILE *open_rows(void) {
  const char *path = tests_path("golden/zb_table5.csv");
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s is missing", path);
  return file;
}

/* The bubble that the search reaches; the limit in parts of p. SEARCH_SECONDS in the environment
 * asks for more work. */
static double searched_bubble(const struct row *row, double limit, double weight, uint64_t seconds,
                              double *bound) {
  const char *more = getenv("SEARCH_SECONDS");
  struct pen_partition *partition = make_partition(row->ranks, 1, row->microbatches, false);
  struct pen_stage_cost *cost = pen_new(row->ranks, sizeof *cost);
  for (uint32_t stage = 0; stage < row->ranks; stage++) cost[stage] = row->cost;
  struct pen_topology *topology = search_topology("span", limit * row->ranks, 1, weight);
  struct pen_search *search =
      run_search(topology, partition, cost, false, more ? strtoull(more, NULL, 10) : seconds, 0);
  struct pen_timing *timing = pen_simulate(search->order, partition, &pen_training_none, cost, -1);
  *bound = fmax(0, 1 - timing->work / search->lower_bound);
  print_message("# %s m=%u at %g p: bubble %.5f, bound %.5f\n", row->model, row->microbatches,
                limit, timing->bubble, *bound);
  return timing->bubble;
}

static void published_cases_are_beaten(void **state) {
  (void)state;
  FILE *file = open_rows();
  struct row row = {.ranks = 0};
  unsigned found = 0;
  while (next_row(file, &row))
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
      if (strcmp(published[i].model, row.model) || published[i].microbatches != row.microbatches)
        continue;
      double bound,
          bubble = searched_bubble(&row, published[i].limit, published[i].weight, 2, &bound);
      if (bubble > published[i].most)
        fail_msg("%s: bubble %.5f, wanted %.5f", row.model, bubble, published[i].most);
      if (published[i].limit < 2 && bubble > bound + 1e-6)
        fail_msg("%s: bubble %.6f, the bound is %.6f", row.model, bubble, bound);
      found++;
    }
  fclose(file);
  assert_int_equal(found, sizeof published / sizeof *published);
}

/* The paper's own search, to its four decimals, is never better, with the least work that ours may
 * do; at a limit of p ours is the best there is: it meets its bound. */
static void no_row_of_the_table_is_better(void **state) {
  (void)state;
  FILE *file = open_rows();
  struct row row = {.ranks = 0};
  unsigned compared = 0;
  while (next_row(file, &row)) {
    bool small = !strcmp(row.model, "1.5B");
    if (!small && strcmp(row.model, "6.2B"))
      continue; /* the paper gives no live_weight of the others */
    for (int limit = 1; limit <= 2; limit++, compared++) {
      double bound, bubble = searched_bubble(&row, limit, small ? 0.366 : 0.432, 0, &bound);
      if (limit == 1 && bubble > bound + 1e-6)
        fail_msg("at a limit of p the bound is %.6f, found %.6f", bound, bubble);
      if (bubble > row.heuristic[limit - 1] + 0.00005)
        fail_msg("published %.4f", row.heuristic[limit - 1]);
    }
    pen_free_all();
  }
  fclose(file);
  assert_int_equal(compared, 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moves_keep_the_simulators_times),
      cmocka_unit_test(tiny_cases_are_solved),
      cmocka_unit_test(no_named_schedule_is_better),
      cmocka_unit_test(each_objective_breaks_the_others_ties),
      cmocka_unit_test(the_same_seed_gives_the_same_order),
      cmocka_unit_test(published_cases_are_beaten),
      cmocka_unit_test(no_row_of_the_table_is_better),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
