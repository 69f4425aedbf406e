/* compose.c: each golden order, action by action; the rules at sizes without golden files; refused
 * settings. */
#include <math.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "gen/verify/verify.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/plans.h"
#include "gen/topology/schedule_table.h"

#define least(a, b) ((a) < (b) ? (a) : (b))

/* Compares one golden file with what we compose; returns how many orders it holds. */
static unsigned match_file(const char *name, const char *schedule, int warmup, bool zero_bubble) {
  const char *path = tests_path(pen_text("golden/%s", name));
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s is missing", path);
  char *line = NULL;
  const char *expected = "";
  size_t capacity = 0;
  unsigned count = 0, ranks = 0, left = 0, stages, microbatches;
  struct pen_partition *partition;
  while (getline(&line, &capacity, file) >= 0) {
    if (sscanf(line, "# ranks=%u stages_per_rank=%u microbatches=%u", &ranks, &stages,
               &microbatches) == 3) {
      assert_int_equal(left, 0);
      left = ranks;
      expected = "";
      continue;
    }
    expected = pen_text("%s%s", expected, line);
    if (--left > 0) continue;
    char *text = order_text(
        make_order(schedule, warmup, zero_bubble, ranks, stages, microbatches, &partition));
    if (strcmp(text, expected) != 0)
      fail_msg("%s: ranks=%u stages_per_rank=%u microbatches=%u:\n%swanted\n%s", name, ranks,
               stages, microbatches, text, expected);
    free(text);
    count++;
  }
  free(line);
  fclose(file);
  return count;
}

static void golden_orders_match(void **state) {
  (void)state;
  unsigned counts[] = {match_file("gpipe.txt", "gpipe", 0, false),
                       match_file("inference.txt", "inference", 0, false),
                       match_file("looped_bfs.txt", "looped_bfs", 0, false),
                       match_file("1f1b.txt", "1f1b", 2, false),
                       match_file("1f1b_zb.txt", "1f1b", 0, true),
                       match_file("zero_bubble_v.txt", "zero_bubble_v", 0, false),
                       match_file("dual_pipe_v.txt", "dual_pipe_v", 0, false)};
  static const unsigned expected[] = {20, 20, 40, 40, 40, 20, 10};
  unsigned total = 0;
  for (size_t index = 0; index < 7; index++) {
    assert_int_equal(counts[index], expected[index]);
    total += counts[index];
  }
  print_message("# %u golden orders match\n", total);
}

/* The default warm-up: classic with one stage a rank or with zero_bubble, else doubled. */
static void warmup_defaults_follow_the_design(void **state) {
  (void)state;
  struct pen_partition *partition;
  for (unsigned stages = 1; stages <= 2; stages++)
    for (int split = 0; split < 2; split++) {
      char *settled = order_text(
          make_order("1f1b", stages == 1 || split ? 1 : 2, split, 4, stages, 8, &partition));
      char *unset = order_text(make_order("1f1b", 0, split, 4, stages, 8, &partition));
      assert_string_equal(settled, unset);
      free(settled);
      free(unset);
    }
}

/* zb_h1, zb_h2 and interleaved equal 1f1b with the settings of their table entries, action by
 * action. */
static void named_variants_of_1f1b_equal_its_settings(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int warmup;
    bool asked, split; /* zero_bubble by the topology and by the table */
    unsigned stages_first, stages_last;
  } forms[] = {{"zb_h1", 1, false, true, 1, 1},
               {"zb_h2", 2, false, true, 1, 1},
               {"interleaved", 2, false, false, 2, 4},
               {"interleaved", 2, true, true, 2, 4}};
  static const unsigned rank_counts[] = {1, 2, 3, 4, 7, 16};
  unsigned compared = 0;
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
    for (size_t r = 0; r < sizeof rank_counts / sizeof *rank_counts; r++)
      for (unsigned stages = forms[f].stages_first; stages <= forms[f].stages_last; stages++)
        for (unsigned rounds = 1; rounds <= 3; rounds++) {
          unsigned ranks = rank_counts[r],
                   microbatches = rounds * ranks +
                                  (stages == 1); /* with one stage a rank any number will do */
          struct pen_partition *partition;
          char *named = order_text(make_order(forms[f].name, 0, forms[f].asked, ranks, stages,
                                              microbatches, &partition));
          char *plain = order_text(make_order("1f1b", forms[f].warmup, forms[f].split, ranks,
                                              stages, microbatches, &partition));
          assert_string_equal(named, plain);
          free(named);
          free(plain);
          pen_free_all();
          compared++;
        }
  print_message("# %u orders are 1f1b's\n", compared);
}

/* In zb_h2 the weight gradients of rank r are 2 r microbatches late: W of microbatch n follows I of
 * n + 2 r; the rest is at the end. */
static void zb_h2_delays_weight_gradients(void **state) {
  (void)state;
  for (unsigned ranks = 1; ranks <= 9; ranks++)
    for (unsigned microbatches = 1; microbatches <= 40; microbatches += 3) {
      struct pen_partition *partition;
      const struct pen_order *order =
          make_order("zb_h2", 0, false, ranks, 1, microbatches, &partition);
      for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t inputs = 0, weights = 0;
        for (uint32_t index = 0; index < order->count[rank]; index++) {
          const struct pen_compute *action = &order->action[rank][index];
          if (action->kind == PEN_I) assert_int_equal(action->microbatch, inputs++);
          if (action->kind != PEN_W) continue;
          assert_int_equal(action->microbatch, weights);
          uint32_t wanted = weights++ + 2 * rank;
          assert_int_equal(inputs, wanted < microbatches ? wanted + 1 : microbatches);
          if (wanted < microbatches)
            assert_true(action[-1].kind == PEN_I && action[-1].microbatch == wanted);
          else
            assert_true(action[-1].kind == PEN_W || action[-1].microbatch + 1 == microbatches);
        }
        assert_int_equal(weights, microbatches);
      }
      pen_free_all();
    }
}

static const struct {
  const char *schedule;
  int warmup;
  bool zero_bubble;
  unsigned ranks, stages, microbatches;
} beyond[] = {
    {"inference", 0, false, 3, 1, 7},     {"looped_bfs", 0, false, 16, 4, 7},
    {"1f1b", 2, false, 7, 1, 5},          {"1f1b", 1, true, 64, 1, 512},
    {"1f1b", 2, true, 16, 1, 64},         {"1f1b", 0, true, 8, 4, 64},
    {"1f1b", 2, false, 3, 3, 5},          {"1f1b", 1, false, 4, 2, 4},
    {"zero_bubble_v", 0, false, 5, 2, 3}, {"zero_bubble_v", 0, false, 7, 2, 100},
    {"dual_pipe_v", 0, false, 5, 2, 11},  {"zb_h2", 0, false, 9, 1, 3},
    {"v_half", 0, false, 6, 2, 1},        {"v_half", 0, false, 7, 2, 5},
    {"v_min", 0, false, 9, 2, 4},         {"v_min", 0, false, 1, 2, 3},
};

/* Lowered, the order is right: every action once, in order, on the rank of its stage; messages
 * match; no model deadlocks. */
static void check_order(const char *schedule, const struct pen_order *order,
                        const struct pen_partition *partition) {
  struct pen_problem problem = {.rank = PEN_NONE, .action = PEN_NONE};
  int kind = pen_schedule_of(schedule_named(schedule))->trains ? PEN_TRAIN : PEN_EVAL;
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1, 1, 1, 0.25, 0, 0, {0}, {0}};
  struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
  uint32_t shape[] = {partition->rank_count, partition->stages_per_rank,
                      partition->microbatch_count};
  if (!timing->complete)
    fail_msg("%s, %u x %u x %u never ends", schedule, shape[0], shape[1], shape[2]);
  struct pen_lowered *lowered = pen_lower(order, partition, &pen_training_none, timing, kind);
  if (!pen_verify_actions(
          &(struct pen_action_lists){lowered->action, lowered->count, partition->rank_of,
                                     partition->rank_count, partition->stage_count,
                                     partition->microbatch_count, kind},
          &problem))
    fail_msg("%s, %u x %u x %u: rank %u, row %u: %s", schedule, shape[0], shape[1], shape[2],
             problem.rank, problem.action, problem.reason);
}

/* Numbers that no golden file has: odd ones, few microbatches, both warm-ups with and without the
 * split. */
static void rules_hold_between_golden_sizes(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof beyond / sizeof beyond[0]; row++) {
    struct pen_partition *partition;
    struct pen_order *order =
        make_order(beyond[row].schedule, beyond[row].warmup, beyond[row].zero_bubble,
                   beyond[row].ranks, beyond[row].stages, beyond[row].microbatches, &partition);
    check_order(beyond[row].schedule, order, partition);
    pen_free_all();
  }
}

/* Every schedule on up to 64 ranks, with up to four stages on each. */
static void rules_hold_beyond_golden_sizes(void **state) {
  (void)state;
  unsigned checked = 0;
  for (uint32_t index = 0; index < pen_schedule_count; index++) {
    const struct pen_schedule *schedule = &pen_schedules[index];
    for (uint32_t ranks = 4; ranks <= 64 && !schedule->given; ranks *= 4)
      for (uint32_t stages = schedule->stages_minimum; stages <= least(schedule->stages_maximum, 4);
           stages++) {
        struct pen_partition *partition;
        struct pen_order *order =
            make_order(schedule->name, 0, false, ranks, stages, 2 * ranks, &partition);
        check_order(schedule->name, order, partition);
        pen_free_all();
        checked++;
      }
  }
  print_message("# %u orders of up to 64 ranks and four stages a rank hold\n", checked);
}

/* ---- what schedules.def says of bubble and peak ---- */

#define PEN_SCHEDULE(key, compose, suits, name, bubble, peak, holds, ...) \
  static double bubble_of_##key(long P, long s, long m, long w) {         \
    return (void)P, (void)s, (void)m, (void)w, 1. * bubble;               \
  }                                                                       \
  static long peak_of_##key(long P, long s, long m, long w) {             \
    return (void)P, (void)s, (void)m, (void)w, peak;                      \
  }                                                                       \
  static bool holds_of_##key(long P, long s, long m, long w) {            \
    return (void)P, (void)s, (void)m, (void)w, holds;                     \
  }
#include "gen/topology/schedules.def"
static const struct {
  double (*bubble)(long, long, long, long);
  long (*peak)(long, long, long, long);
  bool (*holds)(long, long, long, long);
} claimed[] = {
#define PEN_SCHEDULE(key, ...) {bubble_of_##key, peak_of_##key, holds_of_##key},
#include "gen/topology/schedules.def"
};

/* The most stages and microbatches of one rank between the start of F and the end of W or B. */
static long peak_of(const struct pen_order *order) {
  long most = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    long live = 0;
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      const struct pen_compute *action = &order->action[rank][index];
      if (action->kind == PEN_F && ++live > most) most = live;
      if (action->overlaps) continue; /* a pair holds both at once */
      if (index > 0 && action[-1].overlaps &&
          (action[-1].kind == PEN_B || action[-1].kind == PEN_W))
        live--;
      if (action->kind == PEN_B || action->kind == PEN_W) live--;
    }
  }
  return most;
}

static void compare_claims(size_t index, uint32_t ranks, uint32_t stages, uint32_t microbatches,
                           unsigned *compared) {
  const struct pen_schedule *schedule = &pen_schedules[index];
  long warmup = pen_schedule_warmup(schedule, make_topology(schedule->name, 0, false), stages);
  if (!claimed[index].holds(ranks, stages, microbatches, warmup)) return;
  struct pen_partition *partition;
  struct pen_order *order =
      make_order(schedule->name, 0, false, ranks, stages, microbatches, &partition);
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1, 1, 1, 0, 0, 0, {0}, {0}};
  double bubble = pen_simulate(order, partition, &pen_training_none, cost, -1)->bubble;
  double claim = claimed[index].bubble(ranks, stages, microbatches, warmup);
  long peak = schedule->trains ? peak_of(order) : 0,
       peak_claim = claimed[index].peak(ranks, stages, microbatches, warmup);
  if (fabs(bubble - claim) > 1e-12 || peak != peak_claim)
    fail_msg("%s, P=%u s=%u m=%u: bubble %.4f, said to be %s = %.4f; peak %ld, said to be %s = %ld",
             schedule->name, ranks, stages, microbatches, bubble, schedule->bubble, claim, peak,
             schedule->peak, peak_claim);
  ++*compared;
}

static void bubbles_and_peaks_match_the_table(void **state) {
  (void)state;
  for (size_t index = 0; index < pen_schedule_count; index++) {
    unsigned compared = 0;
    if (pen_schedules[index].given) continue;
    for (uint32_t ranks = 1; ranks <= 9; ranks++)
      for (uint32_t stages = pen_schedules[index].stages_minimum;
           stages <= least(pen_schedules[index].stages_maximum, 4); stages++)
        for (uint32_t microbatches = 1; microbatches <= 36; microbatches++) {
          compare_claims(index, ranks, stages, microbatches, &compared);
          pen_free_all();
        }
    for (uint32_t ranks = 16; ranks <= 64; ranks *= 2)
      for (uint32_t stages = pen_schedules[index].stages_minimum;
           stages <= least(pen_schedules[index].stages_maximum, 4); stages++) {
        compare_claims(index, ranks, stages, 3 * ranks, &compared);
        pen_free_all();
      }
    if (compared < 40) fail_msg("%s: only %u plans compared", pen_schedules[index].name, compared);
  }
}

/* Eval's order holds few finished forwards back: on every placement each rank is never idle while
 * it could run. */
static void forward_orders_complete_on_any_placement(void **state) {
  (void)state;
  for (unsigned ranks = 1; ranks <= 6; ranks++)
    for (unsigned stages = 1; stages <= 4; stages++)
      for (int zigzag = 0; zigzag < 2; zigzag++) {
        struct pen_partition *partition = make_partition(ranks, stages, 9, zigzag);
        struct pen_order *order = pen_compose_forward(partition);
        struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
        for (uint32_t stage = 0; stage < partition->stage_count; stage++) cost[stage].forward = 1;
        struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
        assert_true(timing->complete);
        for (uint32_t rank = 0; rank < ranks; rank++)
          assert_int_equal(order->count[rank], stages * 9);
        assert_true(timing->makespan <= stages * (9 + ranks));
        pen_free_all();
      }
}

/* ---- refusals: run as penstock-gen would, in a child whose standard error is read ---- */

static void expect_refusal(const char *schedule, unsigned ranks, unsigned stages,
                           unsigned microbatches, const char *placement, const char *words) {
  int ends[2], status;
  char message[1024] = "", path[] = "/tmp/penstock-compose-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  dprintf(
      file,
      "pipeline = { ranks = %u; stages_per_rank = %u; microbatches = %u; schedule = \"%s\";%s };\n"
      "model = { family = \"mlp\"; layers = %u; hidden = 8; sequence = 4; };\nbatch = { microbatch "
      "= 1; };\n"
      "optimizer = { learning_rate = 1e-3; steps = 10; };\n",
      ranks, stages, microbatches, schedule, placement, ranks * stages);
  close(file);
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    struct pen_topology *topology = pen_topology_read(path, NULL, 0);
    pen_compose(topology, partition_topology(topology));
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got = 1; got > 0 && length<sizeof message - 1; length += got> 0 ? (size_t)got : 0)
    got = read(ends[0], message + length, sizeof message - 1 - length);
  message[length] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  unlink(path);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != PEN_EXIT_TOPOLOGY || !strstr(message, words) ||
      !strstr(message, path))
    fail_msg("%s %u x %u x %u: status %d, \"%s\", wanted \"%s\"", schedule, ranks, stages,
             microbatches, status, message, words);
}

/* For ranks 1, 2, 4, 8 and microbatches 1, 2, 4, 8, 16 there are golden files for all that the
 * rules allow, except dual_pipe_v. */
static void sizes_without_golden_files_are_refused(void **state) {
  (void)state;
  unsigned refused = 0;
  for (unsigned ranks = 1; ranks <= 8; ranks *= 2)
    for (unsigned microbatches = 1; microbatches <= 16 && microbatches < 2 * ranks;
         microbatches *= 2, refused++)
      expect_refusal("dual_pipe_v", ranks, 2, microbatches, "",
                     pen_text("with the schedule dual_pipe_v at least 2 x ranks = %u", 2 * ranks));
  assert_int_equal(refused, 4 * 5 - 10);
}

static void unfit_numbers_are_refused(void **state) {
  (void)state;
  expect_refusal("gpipe", 2, 2, 4, "", "stages_per_rank = 2: 1, with the schedule gpipe");
  expect_refusal("zero_bubble_v", 2, 1, 4, "",
                 "stages_per_rank = 1: 2, with the schedule zero_bubble_v");
  expect_refusal("zero_bubble_v", 2, 3, 4, "",
                 "stages_per_rank = 3: 2, with the schedule zero_bubble_v");
  expect_refusal(
      "1f1b", 2, 2, 7, "",
      "microbatches = 7: with several stages a rank, 1f1b needs rounds = microbatches div ranks = 3"
      " to divide it");
  expect_refusal("zero_bubble_v", 2, 2, 4, " placement = \"loop\";",
                 "placement = \"loop\": \"v\", with the schedule zero_bubble_v");
  expect_refusal("1f1b", 2, 2, 4, " placement = \"v\";",
                 "placement = \"v\": \"loop\", with the schedule 1f1b");
  expect_refusal("dual_pipe_v", 3, 2, 5, "",
                 "microbatches = 5: with the schedule dual_pipe_v at least 2 x ranks = 6");
  expect_refusal("interleaved", 2, 1, 4, "",
                 "stages_per_rank = 1: 2 to 64, with the schedule interleaved");
  expect_refusal("interleaved", 2, 2, 7, "",
                 "interleaved needs rounds = microbatches div ranks = 3 to divide it");
  expect_refusal("interleaved", 2, 2, 4, " warmup = 1;",
                 "warmup = 1: 2, with the schedule interleaved");
  expect_refusal("zb_h1", 2, 2, 4, "", "stages_per_rank = 2: 1, with the schedule zb_h1");
  expect_refusal("zb_h2", 2, 1, 4, " zero_bubble = false;",
                 "zero_bubble = false: true, with the schedule zb_h2");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(golden_orders_match),
      cmocka_unit_test(named_variants_of_1f1b_equal_its_settings),
      cmocka_unit_test(zb_h2_delays_weight_gradients),
      cmocka_unit_test(warmup_defaults_follow_the_design),
      cmocka_unit_test(rules_hold_between_golden_sizes),
      cmocka_unit_test(rules_hold_beyond_golden_sizes),
      cmocka_unit_test(bubbles_and_peaks_match_the_table),
      cmocka_unit_test(forward_orders_complete_on_any_placement),
      cmocka_unit_test(sizes_without_golden_files_are_refused),
      cmocka_unit_test(unfit_numbers_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
