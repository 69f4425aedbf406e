/* simulate.c: times against closed forms, published figures, and properties that hold for any order. */
#include <math.h>
#include <stdio.h>

#include "tests/plans.h"

static struct pen_stage_cost *even_costs(const struct pen_partition *partition, double f, double i, double w, double send) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) cost[stage] = (struct pen_stage_cost){f, i, w, send};
  return cost;
}

static struct pen_timing *time_schedule(const char *schedule, int warmup, bool split, uint32_t ranks, uint32_t stages,
                                        uint32_t microbatches, double f, double i, double w, double send) {
  struct pen_partition *partition;
  struct pen_order *order = make_order(schedule, warmup, split, ranks, stages, microbatches, &partition);
  return pen_simulate(order, partition, even_costs(partition, f, i, w, send), -1);
}

static void expect_near(double value, double wanted, double within, const char *what) {
  if (!(fabs(value - wanted) <= within)) fail_msg("%s: %.6f, wanted %.6f", what, value, wanted);
}

/* 1F1B and GPipe, equal costs, messages at once: bubble (P-1)/(m+P-1) of the span; and both bounds meet the makespan. */
static void bubbles_have_their_closed_form(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 8; ranks *= 2)
    for (uint32_t microbatches = ranks; microbatches <= 64; microbatches *= 2) {
      double wanted = (ranks - 1.0) / (microbatches + ranks - 1);
      for (int which = 0; which < 2; which++) {
        struct pen_timing *timing = time_schedule(which ? "gpipe" : "1f1b", 0, false, ranks, 1, microbatches, 1, 1, 1, 0);
        expect_near(timing->bubble, wanted, 1e-12, "bubble");
        expect_near(timing->makespan, 3.0 * (microbatches + ranks - 1), 1e-9, "makespan");
        expect_near(timing->gap, 0, 1e-12, "gap");
        for (uint32_t rank = 0; rank < ranks; rank++) {
          expect_near(timing->busy[rank], 3.0 * microbatches, 1e-9, "busy");
          expect_near(timing->busy[rank] + timing->idle[rank], timing->makespan, 1e-9, "busy + idle");
        }
      }
    }
}

/* Interleaving s stages divides the bubble of 1F1B by s (Narayanan et al. 2021): stages cost 1/s each. */
static void interleaving_divides_the_bubble(void **state) {
  (void)state;
  for (uint32_t stages = 1; stages <= 4; stages *= 2) {
    struct pen_timing *timing = time_schedule("1f1b", stages == 1 ? 1 : 2, false, 4, stages, 16, 1.0 / stages, 1.0 / stages, 0, 0);
    expect_near(timing->span - timing->work, 2.0 * 3 / stages, 1e-9, "idle time of interleaved 1f1b");
  }
}

/* ZB-V with equal F, I and W and nothing to send: no bubble within any rank's span once m >= 2P-1. */
static void zero_bubble_v_has_no_bubble(void **state) {
  (void)state;
  static const uint32_t sizes[][2] = {{2, 3}, {2, 16}, {4, 7}, {4, 32}, {8, 15}, {8, 64}, {64, 512}};
  for (size_t row = 0; row < sizeof sizes / sizeof sizes[0]; row++) {
    struct pen_timing *timing = time_schedule("zero_bubble_v", 0, false, sizes[row][0], 2, sizes[row][1], 1, 1, 1, 0);
    expect_near(timing->bubble, 0, 1e-12, "bubble of zero_bubble_v");
    pen_free_all();
  }
}

/* Zero Bubble (arXiv 2401.10241) table 5: bubbles of 1F1B and ZB-H1 under the measured costs of table 9, to four decimals. */
static void published_bubbles_match(void **state) {
  (void)state;
  const char *path = tests_path("zb_table5.csv");
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s is missing", path);
  char line[256], model[16];
  unsigned rows = 0, matched[2] = {0};
  while (fgets(line, sizeof line, file)) {
    unsigned ranks, microbatches, chunks;
    double f, i, w, send, wanted[3];
    if (sscanf(line, "%15[^,],%u,%u,%lf,%lf,%lf,%lf,%u,%lf,%lf,%lf", model, &ranks, &microbatches, &f, &i, &w, &send, &chunks,
               &wanted[0], &wanted[1], &wanted[2]) != 11)
      continue;
    rows++;
    for (int split = 0; split < 2; split++) {
      struct pen_timing *timing = time_schedule("1f1b", 1, split, ranks, 1, microbatches, f, i, w, send);
      double published = wanted[split ? 2 : 0];
      bool equal = fabs(timing->bubble - published) <= 0.00005 + 1e-9;
      matched[split] += equal;
      if (!equal) print_message("# %s p=%u m=%u %s: %.5f, published %.4f\n", model, ranks, microbatches, split ? "split" : "1f1b",
                                timing->bubble, published);
    }
  }
  fclose(file);
  print_message("# of %u rows: 1F1B matches %u, ZB-H1 %u\n", rows, matched[0], matched[1]);
  assert_int_equal(rows, 12);
  assert_int_equal(matched[0], rows);
  assert_int_equal(matched[1], rows);
}

/* ---- properties of any order, any costs ---- */

struct seat {
  uint32_t rank, index;
};

/* Runs the actions one by one in the order of `turn` and checks that each finds what it needs, no earlier than it came. */
static void check_turns(const struct pen_order *order, const struct pen_partition *partition, const struct pen_stage_cost *cost,
                        const struct pen_timing *timing, const char *which) {
  size_t total = 0, cells = (size_t)partition->stage_count * partition->microbatch_count;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) total += order->count[rank];
  struct seat *seat = pen_new(total, sizeof *seat);
  bool *taken = pen_new(total, sizeof *taken);
  double *end[2] = {pen_new(cells, sizeof(double)), pen_new(cells, sizeof(double))}, at = -INFINITY;
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      uint64_t turn = timing->turn[rank][index];
      if (turn >= total || taken[turn]) fail_msg("%s: turn %lu is out of range or twice there", which, (unsigned long)turn);
      taken[turn] = true;
      seat[turn] = (struct seat){rank, index};
    }
  for (int kind = 0; kind < 2; kind++)
    for (size_t cell = 0; cell < cells; cell++) end[kind][cell] = NAN;
  for (size_t turn = 0; turn < total; turn++) {
    uint32_t rank = seat[turn].rank, index = seat[turn].index, microbatches = partition->microbatch_count;
    const struct pen_compute *action = &order->action[rank][index];
    size_t own = (size_t)action->stage * microbatches + action->microbatch;
    double start = timing->start[rank][index], come = 0;
    bool backward = action->kind == PEN_B || action->kind == PEN_I;
    if (action->kind == PEN_F && action->stage > 0)
      come = end[0][own - microbatches] + (partition->rank_of[action->stage - 1] == rank ? 0 : cost[action->stage - 1].send);
    if (backward && action->stage + 1u < partition->stage_count)
      come = end[1][own + microbatches] + (partition->rank_of[action->stage + 1] == rank ? 0 : cost[action->stage + 1].send);
    if (backward) come = fmax(come + 0 * end[0][own], end[0][own]); /* NaN stays NaN */
    if (action->kind == PEN_W) come = end[1][own];
    if (!(come <= start) || start < at || (index > 0 && start < timing->end[rank][index - 1]))
      fail_msg("%s: rank %u action %u starts at %g, may at %g; turn %zu, time %g", which, rank, index, start, come, turn, at);
    at = start;
    if (action->kind == PEN_F) end[0][own] = timing->end[rank][index];
    if (backward) end[1][own] = timing->end[rank][index];
  }
}

/* Zero costs, ties and random costs: turns are a global order by time in which everything can run; no makespan is below the bound. */
static void turns_are_a_global_order_by_time(void **state) {
  (void)state;
  static const char *const names[] = {"gpipe", "1f1b", "zero_bubble_v", "looped_bfs"};
  uint64_t seed = 20240229;
  for (unsigned round = 0; round < 200; round++) {
    uint64_t here = seed;
    const char *name = names[draw(&seed, 4)];
    uint32_t ranks = 1 + (uint32_t)draw(&seed, 6), stages = strcmp(name, "gpipe") == 0 ? 1 : 2;
    struct pen_partition *partition;
    uint32_t microbatches = stages == 2 && strcmp(name, "1f1b") == 0 ? ranks * (1 + (uint32_t)draw(&seed, 3))
                                                                  : 1 + (uint32_t)draw(&seed, 12);
    struct pen_order *order = make_order(name, 0, draw(&seed, 2), ranks, stages, microbatches, &partition);
    struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
    uint64_t most = 1 + draw(&seed, 4);
    double unit = round % 2 ? 0.3 : 1; /* sums of 0.3 round */
    for (uint32_t stage = 0; stage < partition->stage_count; stage++)
      cost[stage] = (struct pen_stage_cost){unit * (double)draw(&seed, most), unit * (double)draw(&seed, most),
                                            unit * (double)draw(&seed, most), unit * (double)draw(&seed, most)};
    char *which = pen_text("seed %lu, %s %u x %u x %u", (unsigned long)here, name, ranks, stages, microbatches);
    struct pen_timing *timing = pen_simulate(order, partition, cost, -1);
    if (!timing->complete) fail_msg("%s never ends", which);
    check_turns(order, partition, cost, timing, which);
    if (timing->makespan < timing->lower_bound) fail_msg("%s: %g is below the bound %g", which, timing->makespan, timing->lower_bound);
    pen_free_all();
  }
}

/* The least makespan over every order of a rank's actions, by trying all, is never below the bound: two ranks, two microbatches. */
static double best_of_all(struct pen_order *order, const struct pen_partition *partition, const struct pen_stage_cost *cost,
                          uint32_t rank, uint32_t fixed, double best) {
  if (rank == order->rank_count) {
    struct pen_timing *timing = pen_simulate(order, partition, cost, -1);
    return timing->complete ? fmin(best, timing->makespan) : best;
  }
  if (fixed == order->count[rank]) return best_of_all(order, partition, cost, rank + 1, 0, best);
  struct pen_compute *action = order->action[rank];
  for (uint32_t index = fixed; index < order->count[rank]; index++) {
    struct pen_compute moved = action[index];
    memmove(action + fixed + 1, action + fixed, (index - fixed) * sizeof moved);
    action[fixed] = moved;
    best = best_of_all(order, partition, cost, rank, fixed + 1, best);
    memmove(action + fixed, action + fixed + 1, (index - fixed) * sizeof moved);
    action[index] = moved;
  }
  return best;
}

static void the_bound_is_true_of_every_order(void **state) {
  (void)state;
  uint64_t seed = 77;
  for (unsigned round = 0; round < 24; round++) {
    struct pen_partition *partition;
    struct pen_order *order = round % 3 == 0 ? make_order("1f1b", 1, false, 2, 1, 2, &partition)
                            : round % 3 == 1 ? make_order("1f1b", 1, true, 2, 1, 1, &partition)
                                             : make_order("zero_bubble_v", 0, false, 1, 2, 1, &partition);
    struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
    for (uint32_t stage = 0; stage < partition->stage_count; stage++)
      cost[stage] = (struct pen_stage_cost){(double)draw(&seed, 5), (double)draw(&seed, 5), (double)draw(&seed, 5),
                                            (double)draw(&seed, 3)};
    double bound = pen_simulate(order, partition, cost, -1)->lower_bound;
    double best = best_of_all(order, partition, cost, 0, 0, INFINITY);
    if (best < bound - 1e-9) fail_msg("round %u: an order takes %g, the bound is %g", round, best, bound);
    pen_free_all();
  }
}

static void impossible_orders_are_incomplete(void **state) {
  (void)state;
  struct pen_partition *partition;
  struct pen_order *order = make_order("1f1b", 1, false, 2, 1, 2, &partition);
  struct pen_compute first = order->action[1][0];
  order->action[1][0] = order->action[1][1]; /* 1B0 before 1F0 */
  order->action[1][1] = first;
  struct pen_timing *timing = pen_simulate(order, partition, even_costs(partition, 1, 1, 1, 0), -1);
  assert_false(timing->complete);
  assert_true(isnan(timing->start[1][0]) && isnan(timing->makespan));
  assert_false(isnan(timing->start[0][0]));
}

/* A pair a|b takes the overlap, or the sum, and both end together. */
static void pairs_overlap(void **state) {
  (void)state;
  struct pen_partition *partition;
  struct pen_order *order = make_order("1f1b", 1, false, 2, 1, 4, &partition);
  order->action[0][2].overlaps = true; /* 0F2|0B... : of different microbatches */
  struct pen_stage_cost *cost = even_costs(partition, 1, 1, 1, 0);
  const struct pen_compute *pair = &order->action[0][2];
  assert_true(pair[0].kind != pair[1].kind && pair[0].microbatch != pair[1].microbatch);
  for (int given = 0; given < 2; given++) {
    struct pen_timing *timing = pen_simulate(order, partition, cost, given ? 2.5 : -1);
    assert_true(timing->complete);
    expect_near(timing->start[0][3], timing->start[0][2], 0, "start of the pair");
    expect_near(timing->end[0][3], timing->end[0][2], 0, "end of the pair");
    expect_near(timing->end[0][2] - timing->start[0][2], given ? 2.5 : 3, 1e-12, "the pair's time");
    assert_true(timing->makespan >= timing->lower_bound);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bubbles_have_their_closed_form), cmocka_unit_test(interleaving_divides_the_bubble),
      cmocka_unit_test(zero_bubble_v_has_no_bubble),    cmocka_unit_test(published_bubbles_match),
      cmocka_unit_test(turns_are_a_global_order_by_time), cmocka_unit_test(the_bound_is_true_of_every_order),
      cmocka_unit_test(impossible_orders_are_incomplete), cmocka_unit_test(pairs_overlap),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
