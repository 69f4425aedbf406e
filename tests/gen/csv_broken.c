/* csv_broken.c: random changes to CSV files: each file is refused with status 65 and a message that
 * names the file, or its lowered order is accepted by the verifier. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen/schedule/torch_csv.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "tests/support/plans.h"

enum { ROUNDS = 600, ACCEPTED_WRONG = 99 };

static const struct {
  const char *schedule;
  uint32_t ranks, stages, microbatches;
} shapes[] = {
    {"1f1b", 3, 1, 4},        {"looped_bfs", 2, 2, 3}, {"zb_h1", 3, 1, 4},
    {"dual_pipe_v", 2, 2, 4}, {"v_min", 3, 2, 3},      {"inference", 2, 1, 3},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static char *text_of(const struct pen_order *order) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  pen_csv_print(file, order);
  fclose(file);
  return text;
}

/* ---- what can befall a file ---- */

/* The cell, [begin, end), at a random position. */
static void some_cell(const char *text, uint64_t *seed, size_t *begin, size_t *end) {
  size_t at = draw(seed, strlen(text));
  for (*begin = at; *begin > 0 && !strchr(",\n", text[*begin - 1]);) --*begin;
  *end = *begin + strcspn(text + *begin, ",\n");
}

/* Two cells change places. */
static char *swapped(const char *text, uint64_t *seed) {
  size_t a, a_end, b, b_end;
  some_cell(text, seed, &a, &a_end);
  some_cell(text, seed, &b, &b_end);
  if (a == b) return pen_text("%s", text);
  if (a > b) {
    size_t c = a, c_end = a_end;
    a = b, a_end = b_end, b = c, b_end = c_end;
  }
  return pen_text("%.*s%.*s%.*s%.*s%s", (int)a, text, (int)(b_end - b), text + b, (int)(b - a_end),
                  text + a_end, (int)(a_end - a), text + a, text + b_end);
}

/* Joins a cell and the next one to a pair. */
static char *joined(const char *text, uint64_t *seed) {
  size_t begin, end;
  some_cell(text, seed, &begin, &end);
  if (text[end] != ',' || text[begin] == '(' || text[end + 1] == '(') return pen_text("%s", text);
  size_t last = end + 1 + strcspn(text + end + 1, ",\n");
  return pen_text("%.*s(%.*s;%.*s)OVERLAP_F_B%s", (int)begin, text, (int)(end - begin),
                  text + begin, (int)(last - end - 1), text + end + 1, text + last);
}

static char *without_cell(const char *text, uint64_t *seed) {
  size_t begin, end;
  some_cell(text, seed, &begin, &end);
  return pen_text("%.*s%s", (int)begin, text, text + end);
}

static char *other_byte(const char *text, uint64_t *seed) {
  static const char bytes[] = "0123456789FBIWSRD_,;()\"\n\r |E";
  char *copy = pen_text("%s", text);
  copy[draw(seed, strlen(copy))] = bytes[draw(seed, sizeof bytes - 1)];
  return copy;
}

static char *cut(const char *text, uint64_t *seed) {
  return pen_text("%.*s", (int)draw(seed, strlen(text)), text);
}

static char *(*const ways[])(const char *text, uint64_t *seed) = {swapped,      swapped,    joined,
                                                                  without_cell, other_byte, cut};

/* ---- reading one, in a child ---- */

static void read_and_verify(const char *text, const struct pen_partition *partition) {
  struct pen_problem problem;
  const struct pen_csv *csv = pen_csv_read("broken.csv", text, strlen(text), partition, "test");
  const struct pen_order *order = csv->order;
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  int kind = PEN_EVAL;
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++)
      if (order->action[rank][index].kind != PEN_F) kind = PEN_TRAIN;
  struct pen_timing *timing = pen_simulate(order, partition, &pen_training_none, cost, -1);
  if (!timing->complete) pen_csv_fail_deadlock(csv, partition, pen_timing_done(timing, order));
  struct pen_lowered *lowered = pen_lower(order, partition, &pen_training_none, timing, kind);
  bool right = pen_verify_actions(
      &(struct pen_action_lists){lowered->action, lowered->count, partition->rank_of,
                                 partition->rank_count, partition->stage_count,
                                 partition->microbatch_count, kind},
      &problem);
  if (!right) fprintf(stderr, "rank %u, row %u: %s", problem.rank, problem.action, problem.reason);
  _exit(right ? 0 : ACCEPTED_WRONG);
}

/* Returns the exit status; `said` receives the message. */
static int outcome(const char *text, const struct pen_partition *partition, char said[512]) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    read_and_verify(text, partition);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got = 1; got > 0 && length<511; length += got> 0 ? (size_t)got : 0)
    got = read(ends[0], said + length, 511 - length);
  said[length] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void changed_files_are_refused_or_correct(void **state) {
  (void)state;
  uint64_t seed = 20260101;
  unsigned accepted = 0, refused = 0;
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint64_t here = seed;
    char said[512];
    struct pen_partition *partition;
    uint32_t which = round % SHAPES;
    char *own = text_of(make_order(shapes[which].schedule, 0, false, shapes[which].ranks,
                                   shapes[which].stages, shapes[which].microbatches, &partition));
    const char *text = own;
    for (unsigned times = 1 + (unsigned)draw(&seed, 2); times-- > 0;)
      text = ways[draw(&seed, sizeof ways / sizeof *ways)](*text ? text : own, &seed);
    int status = outcome(text, partition, said);
    if (status == 0)
      accepted++;
    else if (status == PEN_EXIT_DATA && strncmp(said, "broken.csv: row ", 16) == 0)
      refused++;
    else
      fail_msg("seed %lu, %s: status %d, \"%s\", of\n%s", (unsigned long)here,
               shapes[which].schedule, status, said, text);
    free(own);
    pen_free_all();
  }
  print_message("# of %d broken files %u were refused and %u are right\n", ROUNDS, refused,
                accepted);
  assert_true(accepted > ROUNDS / 20 && refused > ROUNDS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(changed_files_are_refused_or_correct)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
