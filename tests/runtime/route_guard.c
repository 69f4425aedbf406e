/* route_guard.c: routes of which any bit was flipped are either routes still, or end the run with
 * 70 before the op's kernel uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/check.h"
#include "runtime/exec/route_guard.h"

enum { ROWS = 3, CHOICES = 2, EXPERTS = 6 };

static const int32_t good[ROWS * CHOICES] = {0, 1, 2, 5, 0, 5};

static bool are_routes(const int32_t *expert) {
  for (int r = 0; r < ROWS; r++) {
    const int32_t one = expert[2 * r], other = expert[2 * r + 1];
    if (one < 0 || one >= EXPERTS || other < 0 || other >= EXPERTS || one >= other) {
      return false;
    }
  }
  return true;
}

static void every_flipped_bit(void **state) {
  (void)state;
  int valid = 0, refused = 0;
  assert_true(pen_routes_are_valid(good, ROWS, CHOICES, EXPERTS));
  for (int n = 0; n < ROWS * CHOICES; n++) {
    for (int bit = 0; bit < 32; bit++) {
      int32_t expert[ROWS * CHOICES];
      memcpy(expert, good, sizeof good);
      expert[n] ^= (int32_t)(1u << bit);
      const bool is_valid = pen_routes_are_valid(expert, ROWS, CHOICES, EXPERTS);
      assert_int_equal(is_valid, are_routes(expert));
      *(is_valid ? &valid : &refused) += 1;
    }
  }
  assert_true(valid > 0 && refused > 150);
}

static int kernel_calls;

static void count_call(const struct pen_call *call) {
  kernel_calls += call->prepared == &kernel_calls;
}

/* The status of a process that calls SUM_CHOICES with these routes, and what it prints. */
static int call_guarded(int32_t *expert, char *text, size_t bytes) {
  static const struct pen_tensor tensors[] = {{.name = "s0.layers.3.routes"}};
  static const struct pen_rank_program program = {.tensors = tensors};
  static const struct pen_device host = {.name = "cpu"};
  struct pen_vm vm = {
      .program = &program, .device = &host, .rank = 2, .data = {.microbatch_index = 7}};
  const struct pen_op op = {.kind = PEN_OP_SUM_CHOICES};
  struct pen_bound_op bound = {.run = count_call,
                               .call = {.operand = {NULL, expert},
                                        .dim = {ROWS, 4, ROWS, CHOICES, 1, 0, EXPERTS},
                                        .prepared = &kernel_calls}};
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    pen_guard_routes(&vm, &op, &bound);
    bound.run(&bound.call);
    _exit(kernel_calls);
  }
  close(ends[1]);
  const ssize_t count = read(ends[0], text, bytes - 1);
  text[count > 0 ? count : 0] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

static void the_kernel_runs_or_the_run_ends(void **state) {
  (void)state;
  char text[400];
  int32_t expert[ROWS * CHOICES];
  memcpy(expert, good, sizeof good);
  assert_int_equal(call_guarded(expert, text, sizeof text), 1);
  expert[3] = EXPERTS;
  assert_int_equal(call_guarded(expert, text, sizeof text), PEN_EXIT_INTERNAL);
  assert_non_null(strstr(text, "rank 2: s0.layers.3.routes of microbatch 7"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_flipped_bit),
      cmocka_unit_test(the_kernel_runs_or_the_run_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
