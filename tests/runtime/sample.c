/* sample.c: drawing a token: as often as softmax says, from the likeliest k alone, the same for the
 * same number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/commands/sample.h"

enum { COUNT = 100, DRAWS = 200000 };

static double weights[COUNT];

static void fill(float *logits, uint64_t key) {
  for (size_t i = 0; i < COUNT; i++) {
    logits[i] = (float)(4 * pen_uniform(key, 1, i) - 2);
  }
}

static void numbers_are_even(void **state) {
  (void)state;
  double sum = 0, squares = 0;
  int tenth[10] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    double x = pen_uniform(7, i % 10, i / 10);
    assert_true(x >= 0 && x < 1);
    sum += x;
    squares += x * x;
    tenth[(int)(10 * x)]++;
  }
  assert_true(fabs(sum / DRAWS - 0.5) < 5 * sqrt(1.0 / 12 / DRAWS));
  assert_true(fabs(squares / DRAWS - 1.0 / 3) < 5 * sqrt(4.0 / 45 / DRAWS));
  for (int i = 0; i < 10; i++) {
    assert_true(abs(tenth[i] - DRAWS / 10) < 5 * sqrt(DRAWS * 0.09));
  }
}

/* Over all of [0, 1) each token gets the part that softmax gives it: the bounds between tokens are
 * found to one part in a million. */
static void parts_are_softmax(void **state) {
  (void)state;
  float logits[COUNT];
  static const double temperatures[] = {0.5, 1, 2};
  static const uint64_t top[] = {0, 1, 7, COUNT};
  fill(logits, 3);
  for (int t = 0; t < 3; t++) {
    for (int k = 0; k < 4; k++) {
      double wanted[COUNT], total = 0, parts[COUNT] = {0};
      for (size_t i = 0; i < COUNT; i++) {
        size_t greater = 0;
        for (size_t j = 0; j < COUNT; j++) {
          greater += logits[j] > logits[i];
        }
        wanted[i] = top[k] != 0 && greater >= top[k] ? 0 : exp((double)logits[i] / temperatures[t]);
        total += wanted[i];
      }
      const int steps = 100000;
      for (int i = 0; i < steps; i++) {
        parts[pen_sample(logits, COUNT, temperatures[t], top[k], (i + 0.5) / steps, weights)] +=
            1.0 / steps;
      }
      for (size_t i = 0; i < COUNT; i++) {
        assert_true(fabs(parts[i] - wanted[i] / total) <= 1.5 / steps);
      }
    }
  }
}

static void temperature_zero_takes_the_likeliest(void **state) {
  (void)state;
  float logits[COUNT];
  for (uint64_t key = 0; key < 50; key++) {
    fill(logits, key);
    size_t drawn = pen_sample(logits, COUNT, 0, 0, 0.999, weights);
    for (size_t i = 0; i < COUNT; i++) {
      assert_true(logits[i] <= logits[drawn]);
    }
    assert_int_equal(pen_sample(logits, COUNT, 1, 1, 0.3, weights), drawn);
  }
}

static void equals_and_what_is_no_number_are_drawn_from_without_harm(void **state) {
  (void)state;
  float logits[COUNT] = {0};
  for (uint64_t k = 0; k <= COUNT; k++) {
    assert_in_range(pen_sample(logits, COUNT, 1, k, 0.999999, weights), 0, COUNT - 1);
  }
  assert_int_equal(pen_sample(logits, 1, 1, 1, 0.5, weights), 0);
  for (size_t i = 0; i < COUNT; i++) {
    logits[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
  }
  for (uint64_t k = 0; k <= COUNT; k++) {
    assert_in_range(pen_sample(logits, COUNT, 1, k, 0.5, weights), 0, COUNT - 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_even),
      cmocka_unit_test(parts_are_softmax),
      cmocka_unit_test(temperature_zero_takes_the_likeliest),
      cmocka_unit_test(equals_and_what_is_no_number_are_drawn_from_without_harm),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
