/* blend.c: after any n windows each file of a blend is within 1.5 windows of its share, and its own
 * windows come in order, each once, wherever the reader begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/data/blend.h"

enum { FILES_MAX = 40, WINDOWS = 3000 };

static uint64_t drawn(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
  return *state >> 33;
}

/* Counts from `start` windows on, where the files' counts are what the blend says there. */
static void check(const uint64_t *weights, uint32_t count, uint64_t start) {
  struct pen_blend blend = pen_blend_make(weights, count);
  uint64_t seen[FILES_MAX], window;
  long double all = 0;
  for (uint32_t f = 0; f < count; f++) {
    seen[f] = UINT64_MAX;
    all += (long double)weights[f];
  }
  for (uint64_t n = start; n < start + WINDOWS; n++) {
    const uint32_t file = pen_blend_file(&blend, n, &window);
    assert_true(file < count);
    assert_true(seen[file] == UINT64_MAX ? start > 0 || window == 0 : window == seen[file]);
    seen[file] = window + 1;
    for (uint32_t f = 0; f < count; f++) {
      const long double share = (long double)(n + 1) * (long double)weights[f] / all;
      const long double read = seen[f] == UINT64_MAX ? 0 : (long double)seen[f];
      assert_true(seen[f] == UINT64_MAX ? start > 0 || share < 1.5L
                                        : share - read < 1.5L && read - share < 1.5L);
    }
  }
  free(blend.nodes);
}

static void test_random_weights(void **state) {
  (void)state;
  uint64_t random = 1, weights[FILES_MAX];
  for (int draw = 0; draw < 300; draw++) {
    const uint32_t count = 1 + (uint32_t)(drawn(&random) % (draw % 2 == 0 ? 5 : FILES_MAX));
    const uint64_t most = UINT64_C(1) << (1 + drawn(&random) % 50);
    for (uint32_t f = 0; f < count; f++) {
      weights[f] = 1 + (drawn(&random) << 20 | drawn(&random) >> 11) % most;
    }
    check(weights, count, draw % 3 == 0 ? drawn(&random) * 1000003 : 0);
  }
}

/* Those for which the bound of a Huffman tree would be above 1.5. */
static void test_weights_that_are_hard_to_divide(void **state) {
  (void)state;
  static const uint64_t fibonacci[] = {1,    1000, 1010,  1017,  2003,  3049,
                                       5081, 8101, 13147, 21269, 34403, 55711},
                        thirds[] = {333333333, 333333333, 333333334}, one[] = {7},
                        largest[] = {1000000000000000, 1, 999999999999999},
                        alike[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  check(fibonacci, sizeof fibonacci / sizeof *fibonacci, 0);
  check(thirds, 3, 0);
  check(one, 1, 0);
  check(largest, 3, 0);
  check(largest, 3, UINT64_C(1) << 61);
  check(alike, sizeof alike / sizeof *alike, 0);
}

/* A part of the positions, in any order, has the windows that the whole has. */
static void test_a_position_alone_says_its_window(void **state) {
  (void)state;
  const uint64_t weights[] = {700000000, 300000000};
  struct pen_blend blend = pen_blend_make(weights, 2);
  static const uint32_t files[] = {0, 1, 0, 0, 0, 1, 0, 0, 1, 0}; /* floor(0.7 n + 1/2) */
  uint64_t windows[2] = {0, 0}, window;
  uint32_t counted[2] = {0, 0};
  for (uint64_t n = 0; n < 10; n++) {
    counted[pen_blend_file(&blend, n, &window)]++;
  }
  assert_int_equal(counted[0], 7);
  assert_int_equal(counted[1], 3);
  for (uint64_t n = 0; n < 1000; n++) {
    const uint32_t file = pen_blend_file(&blend, n, &window);
    assert_int_equal(file, files[n % 10]);
    assert_int_equal(window, windows[file]++);
  }
  free(blend.nodes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_weights),
      cmocka_unit_test(test_weights_that_are_hard_to_divide),
      cmocka_unit_test(test_a_position_alone_says_its_window),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
