/* search_timeline.c: the schedule search's times of an order that it changes, against the
 * simulator. */
#include <math.h>
#include <stdio.h>

#include "gen/partition/training.h"
#include "gen/search/anneal.h"
#include "gen/search/list_schedule.h"
#include "gen/search/timeline.h"
#include "gen/timing/memory_budget.h"
#include "gen/timing/timing.h"
#include "tests/support/search_cases.h"

/* A move of one action, or one that joins or parts I and W, of all that may be. False: none. */
static bool random_move(const struct pen_search_timeline *timeline, uint64_t *seed,
                        struct pen_search_move *move) {
  const struct pen_search_problem *c = timeline->search;
  uint32_t lowest, highest, stage = (uint32_t)draw(seed, c->stage_count),
                            microbatch = (uint32_t)draw(seed, c->microbatch_count);
  bool splits = draw(seed, 2);
  move->cell =
      pen_search_cell_of(c, splits ? PEN_PROGRAM_W : (uint32_t)draw(seed, 3), stage, microbatch);
  move->rank = c->partition->rank_of[stage];
  move->from = timeline->place[move->cell];
  pen_search_reach(timeline, move->cell, &lowest, &highest);
  if (move->from != PEN_NONE && (lowest > move->from || highest < move->from))
    fail_msg("an action at %u may stand from %u to %u", move->from, lowest, highest);
  move->to = lowest + (uint32_t)draw(seed, highest - lowest + 1);
  if (move->from == PEN_NONE) return c->whole[stage] && splits;
  if (splits && draw(seed, 2)) move->to = PEN_NONE;
  return move->to == PEN_NONE ? pen_search_may_leave(timeline, move->cell) : move->to != move->from;
}

/* The timeline's lists say what its order says, and weight gradients rise. */
static void check_lists(const struct pen_search_timeline *timeline, const struct pen_order *order) {
  const struct pen_search_problem *c = timeline->search;
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
  assert_memory_equal(list, timeline->list, (size_t)c->rank_count * c->count * sizeof *list);
}

/* Random moves, kept and taken back: the timeline's times are the simulator's, and what it refuses
 * is too much or never ends. */
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
    struct pen_search_timeline *timeline = pen_search_timeline(c);
    struct pen_search_rule rule = {100, 0, 0.5, true, false, round % 3 == 0, NULL, NULL};
    uint32_t *list = pen_new((size_t)ranks * c->count, sizeof *list);
    struct pen_search_value value;
    assert_true(pen_search_build(pen_search_builder(c), &rule, list));
    assert_true(pen_search_set(timeline, list, &value));
    for (unsigned n = 0; n < 400; n++) {
      struct pen_search_move move;
      if (!random_move(timeline, &seed, &move)) continue;
      if (!pen_search_try(timeline, &move, INFINITY, &value)) {
        full++;
        continue;
      }
      if (draw(&seed, 3) == 0)
        pen_search_undo(timeline, &move);
      else
        pen_search_keep(timeline), kept++, joined += move.to == PEN_NONE;
      struct pen_order *order = pen_search_order(c, timeline->list);
      check_lists(timeline, order);
      struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
      assert_true(timing->complete);
      if (!pen_budget_holds(budget, order))
        fail_msg("round %u, move %u: the order holds too much", round, n);
      for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < order->count[r]; i++)
          if (fabs(timeline->times[timeline->list[r * c->count + i]].start - timing->start[r][i]) >
              1e-9)
            fail_msg("round %u, move %u: rank %u, action %u starts at %g, simulated %g", round, n,
                     r, i, timeline->times[timeline->list[r * c->count + i]].start,
                     timing->start[r][i]);
    }
    pen_free_all();
  }
  print_message("# %lu moves kept, %lu of them made a B; %lu refused\n", (unsigned long)kept,
                (unsigned long)joined, (unsigned long)full);
  assert_true(kept > 1000 && full > 100 && joined > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moves_keep_the_simulators_times),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
