/* step_timing.c: the gradient exchange between replicas in the simulated step: it costs at most its
 * own duration; its actions are in valid positions; the critical path includes them. */
#include <math.h>
#include <stdio.h>

#include "gen/timing/critical_path.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/collectives.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

struct timed_step {
  struct pen_partition *partition;
  struct pen_order *order;
  struct pen_stage_cost *cost;
  struct pen_collective_cost *collective_cost;
  struct pen_training training;
  const char *which;
};

/* A random plan of `replicas` replicas; costs are integers, so that sums are exact. */
static struct timed_step random_step(uint64_t *seed, uint32_t replicas) {
  static const char *const names[] = {"gpipe", "1f1b", "zero_bubble_v", "looped_bfs"};
  uint64_t here = *seed;
  const char *name = names[draw(seed, 4)];
  uint32_t ranks = 1 + (uint32_t)draw(seed, 5), stages = strcmp(name, "gpipe") == 0 ? 1 : 2,
           microbatches = ranks * (1 + (uint32_t)draw(seed, 3));
  struct timed_step step = {.which = pen_text("seed %lu, %s %u x %u x %u", (unsigned long)here,
                                              name, ranks, stages, microbatches)};
  step.order = make_order(name, 0, draw(seed, 2), ranks, stages, microbatches, &step.partition);
  step.partition->replica_count = step.partition->shard_ranks = replicas;
  step.training.adds_tied_gradient = draw(seed, 3) == 0;
  step.cost = pen_new(step.partition->stage_count, sizeof *step.cost);
  step.collective_cost = pen_new(step.partition->stage_count, sizeof *step.collective_cost);
  for (uint32_t stage = 0; stage < step.partition->stage_count; stage++) {
    step.cost[stage] = (struct pen_stage_cost){(double)draw(seed, 9),
                                               (double)draw(seed, 9),
                                               (double)draw(seed, 9),
                                               (double)draw(seed, 3),
                                               0,
                                               0,
                                               {0},
                                               {0}};
    for (int k = 0; k < PEN_COLLECTIVES; k++)
      step.collective_cost[stage].cost[k] = (double)draw(seed, 7);
  }
  return step;
}

static struct pen_timing *simulate(const struct timed_step *step, bool given) {
  return pen_simulate_step(step->order, step->partition, &step->training, step->cost,
                           step->collective_cost, -1, PEN_TRAIN, given);
}

static void one_replica_exchanges_nothing(void **state) {
  (void)state;
  uint64_t seed = 11;
  for (unsigned round = 0; round < 50; round++) {
    struct timed_step step = random_step(&seed, 1);
    struct pen_timing *timing = simulate(&step, false),
                      *alone =
                          pen_simulate(step.order, step.partition, &step.training, step.cost, -1);
    assert_null(timing->whole);
    assert_true(timing->makespan == alone->makespan && timing->exposed == 0);
    pen_free_all();
  }
}

static void exposed_time_is_at_most_the_duration(void **state) {
  (void)state;
  uint64_t seed = 12;
  unsigned hidden = 0, exposed = 0, better = 0;
  for (unsigned round = 0; round < 400; round++) {
    struct timed_step step = random_step(&seed, 2 + (uint32_t)draw(&seed, 3));
    struct pen_timing *timing = simulate(&step, false), *last = simulate(&step, true),
                      *alone =
                          pen_simulate(step.order, step.partition, &step.training, step.cost, -1);
    double all = 0, most = 0;
    for (uint32_t rank = 0; rank < step.partition->rank_count; rank++) {
      all += timing->exchanging[rank];
      most = fmax(most, timing->exchanging[rank]);
    }
    double wanted = 0;
    for (uint32_t stage = 0; stage < step.partition->stage_count; stage++)
      wanted += pen_collective_cost_of(step.collective_cost, stage, PEN_REDUCE_SCATTER) +
                pen_collective_cost_of(step.collective_cost, stage, PEN_ALL_GATHER_GRAD);
    if (all != wanted) fail_msg("%s: exchanges for %g, not %g", step.which, all, wanted);
    if (timing->exposed < 0 || timing->exposed > all ||
        timing->makespan != alone->makespan + timing->exposed)
      fail_msg("%s: %g of %g exposed, makespan %g over %g", step.which, timing->exposed, all,
               timing->makespan, alone->makespan);
    if (timing->makespan > last->makespan)
      fail_msg("%s: %g, and %g with all of it last", step.which, timing->makespan, last->makespan);
    if (timing->work != alone->work) fail_msg("%s: work changed", step.which);
    if (timing->lower_bound < alone->lower_bound || timing->lower_bound > timing->makespan)
      fail_msg("%s: bound %g, alone %g, makespan %g", step.which, timing->lower_bound,
               alone->lower_bound, timing->makespan);
    hidden += timing->exposed < most;
    exposed += timing->exposed > 0;
    better += timing->makespan < last->makespan;
    pen_free_all();
  }
  print_message("# hidden in part %u times, exposed %u times, better than last %u times\n", hidden,
                exposed, better);
  assert_true(hidden > 20 && exposed > 20 && better > 20);
}

/* Free of cost, nothing is exposed, and the actions run when they did. */
static void zero_costs_change_nothing(void **state) {
  (void)state;
  uint64_t seed = 13;
  for (unsigned round = 0; round < 100; round++) {
    struct timed_step step = random_step(&seed, 2);
    memset(step.collective_cost, 0, step.partition->stage_count * sizeof *step.collective_cost);
    struct pen_timing *timing = simulate(&step, false),
                      *alone =
                          pen_simulate(step.order, step.partition, &step.training, step.cost, -1);
    assert_true(timing->exposed == 0 && timing->span == alone->span);
    for (uint32_t rank = 0; rank < step.order->rank_count; rank++)
      for (uint32_t index = 0; index < step.order->count[rank]; index++)
        if (timing->start[rank][index] != alone->start[rank][index])
          fail_msg("%s: rank %u, action %u moved", step.which, rank, index);
    pen_free_all();
  }
}

/* Each stage once: GRAD_READY when the gradient is complete, then the reduction, then the
 * all-gather. */
static void actions_are_in_order(void **state) {
  (void)state;
  uint64_t seed = 14;
  for (unsigned round = 0; round < 200; round++) {
    struct timed_step step = random_step(&seed, 2);
    struct pen_timing *timing = simulate(&step, draw(&seed, 4) == 0);
    const struct pen_collectives *exchange = timing->collectives;
    uint32_t *place =
        pen_new((size_t)step.partition->stage_count * PEN_ACTION_KINDS, sizeof *place);
    for (uint32_t rank = 0; rank < step.order->rank_count; rank++)
      for (uint32_t i = 0; i < exchange->count[rank]; i++) {
        const struct pen_placed_collective *row = &exchange->collective[rank][i];
        uint32_t *own = &place[row->stage * PEN_ACTION_KINDS];
        if (own[row->kind]++)
          fail_msg("%s: stage %u, kind %u twice", step.which, row->stage, row->kind);
        if ((row->kind == PEN_REDUCE_SCATTER && !own[PEN_GRAD_READY]) ||
            (row->kind == PEN_ALL_GATHER_GRAD && !own[PEN_REDUCE_SCATTER]))
          fail_msg("%s: stage %u, kind %u too early", step.which, row->stage, row->kind);
        if (i > 0 && row[-1].before > row->before)
          fail_msg("%s: rank %u, row %u out of order", step.which, rank, i);
        for (uint32_t index = row->before; index < step.order->count[rank]; index++) {
          const struct pen_compute *action = &step.order->action[rank][index];
          if (action->stage == row->stage && (action->kind == PEN_B || action->kind == PEN_W))
            fail_msg("%s: stage %u is not whole", step.which, row->stage);
        }
      }
    for (uint32_t stage = 0; stage < step.partition->stage_count; stage++)
      assert_true(place[stage * PEN_ACTION_KINDS + PEN_GRAD_READY] &&
                  place[stage * PEN_ACTION_KINDS + PEN_ALL_GATHER_GRAD]);
    pen_free_all();
  }
}

static void the_critical_path_includes_it(void **state) {
  (void)state;
  uint64_t seed = 15;
  unsigned through = 0;
  for (unsigned round = 0; round < 200; round++) {
    struct timed_step step = random_step(&seed, 3);
    struct pen_timing *timing = simulate(&step, false);
    const struct pen_path *path = pen_critical_path(timing->whole_order, step.partition,
                                                    &step.training, step.cost, timing->whole);
    bool meets = false;
    for (size_t i = 0; i < path->count; i++)
      meets |= timing->whole_order->action[path->step[i].rank][path->step[i].index].kind > PEN_W;
    if (path->compute + path->exchanged + path->sent + path->after != timing->makespan)
      fail_msg("%s: the path takes %g + %g + %g + %g, the step %g", step.which, path->compute,
               path->exchanged, path->sent, path->after, timing->makespan);
    if (path->exchanged > 0 && !meets) fail_msg("%s: a path without collectives", step.which);
    if (timing->exposed > 0 && !meets)
      fail_msg("%s: %g exposed, but not on the path", step.which, timing->exposed);
    through += meets;
    pen_free_all();
  }
  assert_true(through > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_replica_exchanges_nothing),
      cmocka_unit_test(exposed_time_is_at_most_the_duration),
      cmocka_unit_test(zero_costs_change_nothing),
      cmocka_unit_test(actions_are_in_order),
      cmocka_unit_test(the_critical_path_includes_it),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
