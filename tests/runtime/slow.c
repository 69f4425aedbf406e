/* slow.c: from the times that ranks publish, slow ranks, links and data are told apart and named
 * within five steps, ranks whose times only vary are not named, and the differences of the hosts'
 * clocks do not matter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/options.h"
#include "runtime/comm/step_timing.h"
#include "runtime/supervise/drift.h"
#include "runtime/supervise/slow.h"

enum { RANKS = 4, RUNS = 200, STEPS = 60, ONSET = 20, SLOW_RANK = 2 };

/* Of messages and of what is measured before the first step, in PEN_DELAY_UNIT_NS. */
enum { MESSAGE_UNITS = 1000, LATENCY_UNITS = 100 };

/* What happens to SLOW_RANK from step ONSET on. */
struct trouble {
  double compute;     /* times as long */
  double compute_s;   /* of each rank in a step, from the start; 0: 0.1 s */
  double deviation;   /* of each rank's time, from the start */
  double data_s;      /* to read its tokens */
  double link;        /* its messages to the rank before: times as long */
  bool never_waits;   /* so that the messages to it are not timed */
  double clock_drift; /* of its host, units of the delays a step, from the start */
  double probed_link; /* its writes to the rank before, before the first step: times as long */
  double first_link;  /* its messages to the rank before, from the first step on: likewise */
};

/* Uniform in [0, 1): xorshift64* (Vigna 2016). */
static double uniform(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (double)(*state * 2685821657736338717u >> 11) / 9007199254740992.0;
}

/* Of mean 0 and deviation 1, by the sum of twelve uniform numbers. */
static double normal(uint64_t *state) {
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    sum += uniform(state);
  }
  return sum;
}

/* Two messages in each direction between neighbours, half as long as the writes before the first
 * step. */
static const struct pen_profile *make_profile(void) {
  static struct pen_channel channels[2 * (RANKS - 1)];
  static struct pen_message messages[4 * (RANKS - 1)];
  static const struct pen_profile profile = {.channels = channels,
                                             .messages = messages,
                                             .channel_count = 2 * (RANKS - 1),
                                             .message_count = 4 * (RANKS - 1)};
  for (uint32_t c = 0; c < profile.channel_count; c++) {
    const uint32_t low = c / 2, back = c % 2;
    channels[c] = (struct pen_channel){
        .from_rank = low + back, .to_rank = low + 1 - back, .message_count = 2};
    messages[2 * c] = messages[2 * c + 1] =
        (struct pen_message){.channel = c, .bytes = PEN_PROBE_BYTES / 2};
  }
  return &profile;
}

/* The difference of the clocks of two ranks. */
static uint32_t clock_difference(uint32_t from, uint32_t to) { return 1000000000u * (to - from); }

/* What a rank measures of the link of place l before the first step. */
static struct pen_link_probe probe_of(uint32_t rank, uint32_t l, const struct trouble *trouble,
                                      uint64_t *state) {
  const uint32_t from = l == 0 ? rank - 1 : rank + 1;
  const bool slow_link = from == SLOW_RANK && l == 1 && trouble->probed_link > 0;
  const double one = LATENCY_UNITS * (1 + 0.5 * uniform(state)),
               bytes = 2 * (MESSAGE_UNITS - LATENCY_UNITS) * (1 + 0.2 * uniform(state)) *
                       (slow_link ? trouble->probed_link : 1);
  return (struct pen_link_probe){
      .bytes = PEN_PROBE_BYTES,
      .full = (uint32_t)(one + bytes) + clock_difference(from, rank),
      .empty = (uint32_t)one + clock_difference(from, rank),
  };
}

static struct pen_run *make_run(void) {
  static const double busy[RANKS] = {1, 1, 1, 0.5};
  struct pen_run *run = calloc(1, sizeof *run);
  struct pen_plan *plan = calloc(1, sizeof *plan);
  *plan = (struct pen_plan){.rank_count = RANKS,
                            .replica_count = 1,
                            .tensor_ranks = 1,
                            .device = PEN_DEVICE_CPU,
                            .forecast = {.unit = "in flops", .makespan = 1, .busy = busy}};
  run->plan = plan;
  run->profile = make_profile();
  run->options = calloc(1, sizeof *run->options);
  run->log_descriptor = -1;
  run->shared.control = calloc(1, sizeof *run->shared.control);
  run->shared.ranks = calloc(RANKS, sizeof *run->shared.ranks);
  for (uint32_t r = 0; r < RANKS; r++) {
    struct pen_rank_state *state = &run->shared.ranks[r];
    snprintf(state->host, sizeof state->host, "host%u", r);
    state->link_peers[0] = r > 0 ? r : 0;                 /* of the rank before */
    state->link_peers[1] = r + 1 < RANKS ? r + 1 + 1 : 0; /* of the rank after */
  }
  return run;
}

static void free_run(struct pen_run *run) {
  free((void *)(uintptr_t)run->plan);
  free((void *)(uintptr_t)run->options);
  free(run->shared.control);
  free(run->shared.ranks);
  free(run);
}

/* The times of one rank in a step; the plan predicts the last rank's badly. */
static struct pen_step_timing time_of(uint32_t rank, uint32_t step, const struct trouble *trouble,
                                      uint64_t *state) {
  const bool slow = step >= ONSET && rank == SLOW_RANK;
  const double usual_s = trouble->compute_s > 0 ? trouble->compute_s : 0.1,
               varies = 1 + trouble->deviation * normal(state),
               compute_s = usual_s * varies * (slow && trouble->compute > 0 ? trouble->compute : 1);
  struct pen_step_timing timing = {.step = step,
                                   .compute_s = (float)compute_s,
                                   .data_s = slow ? (float)trouble->data_s : 1e-5f,
                                   .link_samples = slow && trouble->never_waits ? 0 : 3};
  for (uint32_t l = 0; l < 2; l++) {
    const uint32_t from = l == 0 ? rank - 1 : rank + 1;
    const bool troubled = from == SLOW_RANK && l == 1;
    double units = MESSAGE_UNITS * (1 + 0.2 * uniform(state));
    units *= troubled && step >= ONSET && trouble->link > 0 ? trouble->link : 1;
    units *= troubled && trouble->first_link > 0 ? trouble->first_link : 1;
    units += trouble->clock_drift * step * ((rank == SLOW_RANK) - (double)(from == SLOW_RANK));
    timing.delay[l] = (uint32_t)(int64_t)units + clock_difference(from, rank);
  }
  return timing;
}

/* Returns the step at which the first rank was named, 0: none was; and which, and how. */
static uint32_t run_until_named(uint64_t seed, const struct trouble *trouble, uint32_t *rank,
                                uint32_t *kind) {
  struct pen_run *run = make_run();
  struct pen_slow *slow = pen_slow_open(run);
  uint64_t state = seed * 2654435761u + 1;
  uint32_t named = 0;
  for (uint32_t i = 0; i < RANKS * 2; i++) {
    run->shared.ranks[i / 2].link_probes[i % 2] = probe_of(i / 2, i % 2, trouble, &state);
  }
  for (uint32_t step = 1; step <= STEPS && named == 0; step++) {
    for (uint32_t r = 0; r < RANKS; r++) {
      struct pen_rank_state *rank_state = &run->shared.ranks[r];
      rank_state->timing[(step - 1) % PEN_TIMED_STEPS] = time_of(r, step, trouble, &state);
      pen_futex_counter_increment(&rank_state->timed);
    }
    pen_slow_judge(slow);
    named = pen_slow_count(slow) > 0 ? step : 0;
  }
  for (uint32_t r = 0; r < RANKS && named > 0; r++) {
    if (atomic_load(&run->shared.ranks[r].slow_kind) != PEN_SLOW_NONE) {
      *rank = r;
      *kind = atomic_load(&run->shared.ranks[r].slow_kind);
    }
  }
  pen_slow_close(slow);
  free_run(run);
  return named;
}

/* How many of RUNS runs named SLOW_RANK by this kind within five steps of its trouble, and how many
 * otherwise. */
static void count_named(const struct trouble *trouble, enum pen_slow_kind wanted, int *within,
                        int *otherwise) {
  const uint32_t onset = trouble->first_link > 0 ? 1 : ONSET;
  *within = *otherwise = 0;
  for (uint64_t seed = 1; seed <= RUNS; seed++) {
    uint32_t rank = 0, kind = 0;
    const uint32_t named = run_until_named(seed, trouble, &rank, &kind);
    const bool right = named >= onset && rank == SLOW_RANK && kind == (uint32_t)wanted;
    *within += right && named < onset + 5;
    *otherwise += named > 0 && !right;
  }
}

static void expect(const char *what, const struct trouble *trouble, enum pen_slow_kind kind) {
  int within, otherwise;
  count_named(trouble, kind, &within, &otherwise);
  print_message("# %s: %d of %d within five steps, %d named otherwise\n", what, within, RUNS,
                otherwise);
  assert_true(within >= (kind == PEN_SLOW_NONE ? 0 : RUNS * 48 / 50));
  assert_true(otherwise <= (trouble->deviation > 0.1 ? RUNS / 8 : RUNS * 2 / 100));
}

static void names_a_rank_that_computes_slowly(void **state) {
  (void)state;
  expect("1.2 times", &(struct trouble){.compute = 1.2, .deviation = 0.03}, PEN_SLOW_COMPUTE);
  expect("1.5 times", &(struct trouble){.compute = 1.5, .deviation = 0.06}, PEN_SLOW_COMPUTE);
}

static void names_a_rank_that_waits_for_data(void **state) {
  (void)state;
  expect("data", &(struct trouble){.data_s = 0.03, .deviation = 0.03}, PEN_SLOW_DATA);
}

static void names_a_slow_link(void **state) {
  (void)state;
  expect("a link", &(struct trouble){.link = 4, .deviation = 0.03}, PEN_SLOW_LINK);
  expect("a link and clocks apart",
         &(struct trouble){.link = 4, .clock_drift = 50, .deviation = 0.03}, PEN_SLOW_LINK);
  expect("a link of a sender that never waits",
         &(struct trouble){.link = 4, .never_waits = true, .deviation = 0.03}, PEN_SLOW_LINK);
}

static void names_a_link_that_is_slow_from_the_start(void **state) {
  (void)state;
  expect("a link from the start",
         &(struct trouble){.probed_link = 4, .first_link = 3.8, .deviation = 0.03}, PEN_SLOW_LINK);
  expect(
      "a link from the start and clocks apart",
      &(struct trouble){.probed_link = 4, .first_link = 3.8, .clock_drift = 50, .deviation = 0.03},
      PEN_SLOW_LINK);
}

/* What was slow before the first step, and is no more, or the other way round, may have had to do
 * with the start. */
static void names_no_link_that_is_slow_only_before_or_only_after_the_first_step(void **state) {
  (void)state;
  expect("a link before the first step", &(struct trouble){.probed_link = 4, .deviation = 0.03},
         PEN_SLOW_NONE);
  expect("a link at twice the time",
         &(struct trouble){.probed_link = 2, .first_link = 2, .deviation = 0.03}, PEN_SLOW_NONE);
  expect("messages from the first step on", &(struct trouble){.first_link = 4, .deviation = 0.03},
         PEN_SLOW_NONE);
}

static void names_no_link_that_loses_little(void **state) {
  (void)state;
  expect("a link that loses 0.2 % of a step",
         &(struct trouble){.probed_link = 4, .first_link = 3.8, .compute_s = 0.4, .deviation = .03},
         PEN_SLOW_NONE);
}

static void names_none_where_times_only_vary(void **state) {
  (void)state;
  expect("deviation 3 %", &(struct trouble){.deviation = 0.03}, PEN_SLOW_NONE);
  expect("deviation 6 %", &(struct trouble){.deviation = 0.06}, PEN_SLOW_NONE);
  expect("deviation 15 %", &(struct trouble){.deviation = 0.15}, PEN_SLOW_NONE);
  expect("clocks apart", &(struct trouble){.clock_drift = -300, .deviation = 0.03}, PEN_SLOW_NONE);
}

static void single_samples_are_no_rise(void **state) {
  (void)state;
  struct pen_drift drift = {0};
  for (uint64_t step = 1; step <= STEPS; step++) {
    assert_false(pen_drift_add(&drift, 0.08, step, 0, step % 5 == 0 ? 30 : 1));
  }
}

static void rises_are_dated_and_end(void **state) {
  (void)state;
  struct pen_drift drift = {0};
  int rises = 0;
  for (uint64_t step = 1; step <= 80; step++) {
    const bool rises_now = step / 20 % 2 == 1;
    if (pen_drift_add(&drift, 0.08, step, 0, rises_now ? 1.5 : 1)) {
      rises++;
      assert_int_equal(drift.since, step / 20 * 20);
      assert_float_equal(drift.rise.value, 1.5, 1e-9);
    }
    assert_true(step % 20 != 19 || drift.high == rises_now);
  }
  assert_int_equal(rises, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_a_rank_that_computes_slowly),
      cmocka_unit_test(names_a_rank_that_waits_for_data),
      cmocka_unit_test(names_a_slow_link),
      cmocka_unit_test(names_a_link_that_is_slow_from_the_start),
      cmocka_unit_test(names_no_link_that_is_slow_only_before_or_only_after_the_first_step),
      cmocka_unit_test(names_no_link_that_loses_little),
      cmocka_unit_test(names_none_where_times_only_vary),
      cmocka_unit_test(single_samples_are_no_rise),
      cmocka_unit_test(rises_are_dated_and_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
