/* action_text.c: the text of orders: what is printed reads back, and bad text is refused. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/schedule/action_text.h"
#include "tests/support/action_rows.h"

static void printed_orders_read_back(void **state) {
  (void)state;
  uint64_t seed = 5;
  for (unsigned round = 0; round < 50; round++) {
    struct action_lists rows = some_rows(&seed);
    bool zigzag = rows.partition->stages_per_rank == 2 &&
                  rows.partition->rank_of[rows.partition->rank_count] != 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    uint32_t ranks = rows.partition->rank_count;
    struct pen_rank_program *list = pen_new(ranks, sizeof *list);
    for (uint32_t rank = 0; rank < ranks; rank++)
      list[rank] =
          (struct pen_rank_program){.actions = rows.action[rank], .action_count = rows.count[rank]};
    pen_actions_print(file, list, ranks);
    fclose(file);
    struct action_lists again =
        read_rows(text, rows.partition->rank_count, rows.partition->stages_per_rank,
                  rows.partition->microbatch_count, zigzag);
    free(text);
    for (uint32_t rank = 0; rank < rows.partition->rank_count; rank++) {
      assert_int_equal(rows.count[rank], again.count[rank]);
      for (uint32_t index = 0; index < rows.count[rank]; index++) {
        assert_int_equal(rows.action[rank][index].kind, again.action[rank][index].kind);
        assert_int_equal(rows.action[rank][index].stage, again.action[rank][index].stage);
        assert_int_equal(rows.action[rank][index].microbatch, again.action[rank][index].microbatch);
      }
    }
    pen_free_all();
  }
}

/* The message and status with which a bad text ends the generator. */
static void expect_stop(const char *text, int wanted_status, const char *words) {
  int ends[2], status;
  char message[512] = "";
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    struct action_lists rows;
    if (text)
      rows = read_rows(text, 2, 1, 2, false);
    else
      pen_actions_read("/nonexistent/actions", make_partition(2, 1, 2, false), &rows.action,
                       &rows.count);
    _exit(0);
  }
  close(ends[1]);
  ssize_t length = read(ends[0], message, sizeof message - 1);
  message[length > 0 ? length : 0] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted_status || !strstr(message, words))
    fail_msg("status %d, \"%s\", wanted %d, \"%s\"", WEXITSTATUS(status), message, wanted_status,
             words);
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  expect_stop(NULL, PEN_EXIT_NO_INPUT, "/nonexistent/actions: No such file");
  expect_stop("0: 0F0\n1: 1F0 1X0\n", PEN_EXIT_DATA, ": rank 1, action 1 (1X0): no action such as");
  expect_stop("0: 0F0 0F\n1:\n", PEN_EXIT_DATA, ": rank 0, action 1 (0F): no action such as");
  expect_stop("0: 0F0|\n1:\n", PEN_EXIT_DATA, "rank 0, action 1 (): no action such as");
  expect_stop("0: 0F0x\n1:\n", PEN_EXIT_DATA, ": rank 0, action 0 (0F0x): no action such as");
  expect_stop("0: 0WAIT_F0\n1:\n", PEN_EXIT_DATA, "): no action such as");
  expect_stop("0: 0F99999999999999999999\n1:\n", PEN_EXIT_DATA, "): no action such as");
  expect_stop("0: 0F0\n\n# more\nzero: 1F0\n", PEN_EXIT_DATA, ":4: \"zero: 1F0");
  expect_stop("0: 0F0\n", PEN_EXIT_DATA, "rank 1 has no line");
  expect_stop("0: 0F0\n0: 0F1\n1:\n", PEN_EXIT_DATA, ":2: rank 0 has a line already");
  expect_stop("0:\n1:\n2:\n", PEN_EXIT_DATA, ":3: there is no rank 2");
  expect_stop("0: 0F0 1F0\n1:\n", PEN_EXIT_DATA, "rank 0, action 1 (1F0): stage 1 is on rank 1");
  expect_stop("0: 7F0\n1:\n", PEN_EXIT_DATA, "rank 0, action 0 (7F0): there is no stage 7");
  expect_stop("0: 0F2\n1:\n", PEN_EXIT_DATA, "rank 0, action 0 (0F2): there is no microbatch 2");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(printed_orders_read_back),
      cmocka_unit_test(bad_texts_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
