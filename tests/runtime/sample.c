/* sample.c: drawing a token: as often as softmax says, from the tokens that top_k, top_p and min_p
 * leave, the same for the same number; and the penalty of repeated tokens. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/commands/sample.h"

enum { COUNT = 100, DRAWS = 200000 };

static double weights[COUNT];
static uint32_t order[COUNT];

static size_t draw(const float *logits, size_t count, double temperature, uint64_t top_k,
                   double uniform) {
  const struct pen_sampling sampling = {
      .temperature = temperature, .top_k = top_k, .top_p = 1.0, .min_p = 0.0};
  return pen_sample(logits, count, &sampling, uniform, weights, order);
}

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
        parts[draw(logits, COUNT, temperatures[t], top[k], (i + 0.5) / steps)] += 1.0 / steps;
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
    size_t drawn = draw(logits, COUNT, 0, 0, 0.999);
    for (size_t i = 0; i < COUNT; i++) {
      assert_true(logits[i] <= logits[drawn]);
    }
    assert_int_equal(draw(logits, COUNT, 1, 1, 0.3), drawn);
  }
}

static void equals_and_what_is_no_number_are_drawn_from_without_harm(void **state) {
  (void)state;
  float logits[COUNT] = {0};
  for (uint64_t k = 0; k <= COUNT; k++) {
    assert_in_range(draw(logits, COUNT, 1, k, 0.999999), 0, COUNT - 1);
  }
  assert_int_equal(draw(logits, 1, 1, 1, 0.5), 0);
  for (size_t i = 0; i < COUNT; i++) {
    logits[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
  }
  for (uint64_t k = 0; k <= COUNT; k++) {
    assert_in_range(draw(logits, COUNT, 1, k, 0.5), 0, COUNT - 1);
  }
}

/* ---- top_p and min_p ---- */

/* Whether a is removed before b: it is less likely, or as likely with the higher index. */
static bool goes_first(const double *scores, size_t a, size_t b) {
  return scores[a] < scores[b] || (scores[a] == scores[b] && a > b);
}

static void softmax(const double *scores, double *p) {
  double most = -INFINITY, sum = 0;
  for (size_t i = 0; i < COUNT; i++) {
    most = fmax(most, scores[i]);
  }
  for (size_t i = 0; i < COUNT; i++) {
    p[i] = exp(scores[i] - most);
    sum += p[i];
  }
  for (size_t i = 0; i < COUNT; i++) {
    p[i] /= sum;
  }
}

/* What transformers' warpers do, one after the other, each over a softmax of its own: a token that
 * is removed has the score -inf. */
static void wanted_of(const float *logits, const struct pen_sampling *sampling, double *p) {
  double scores[COUNT], most = 0;
  size_t sorted[COUNT]; /* rising */
  for (size_t i = 0; i < COUNT; i++) {
    scores[i] = (double)logits[i] / sampling->temperature;
    size_t at = i;
    for (; at > 0 && goes_first(scores, i, sorted[at - 1]); at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = i;
  }
  const double last_of_k = sampling->top_k == 0 || sampling->top_k >= COUNT
                               ? -INFINITY
                               : scores[sorted[COUNT - sampling->top_k]];
  for (size_t i = 0; i < COUNT; i++) {
    scores[i] = scores[i] < last_of_k ? -INFINITY : scores[i];
  }
  softmax(scores, p);
  double up_to = 0;
  for (size_t s = 0; s + 1 < COUNT && sampling->top_p < 1; s++) {
    up_to += p[sorted[s]];
    scores[sorted[s]] = up_to <= 1 - sampling->top_p ? -INFINITY : scores[sorted[s]];
  }
  softmax(scores, p);
  for (size_t i = 0; i < COUNT; i++) {
    most = fmax(most, p[i]);
  }
  for (size_t i = 0; i < COUNT; i++) {
    scores[i] = p[i] < sampling->min_p * most ? -INFINITY : scores[i];
  }
  softmax(scores, p);
}

/* Each token has the part that is wanted, to two steps. */
static void check_parts(const float *logits, const struct pen_sampling *sampling) {
  enum { STEPS = 4000 };
  double wanted[COUNT], parts[COUNT] = {0};
  wanted_of(logits, sampling, wanted);
  for (int i = 0; i < STEPS; i++) {
    const size_t token = pen_sample(logits, COUNT, sampling, (i + 0.5) / STEPS, weights, order);
    assert_true(wanted[token] > 0);
    parts[token] += 1.0 / STEPS;
  }
  for (size_t i = 0; i < COUNT; i++) {
    assert_true(fabs(parts[i] - wanted[i]) <= 2.0 / STEPS);
  }
}

/* Every third case has many equal logits, every fourth some that are -inf. */
static void parts_are_those_of_the_warpers(void **state) {
  (void)state;
  float logits[COUNT];
  for (uint64_t key = 0; key < 300; key++) {
    fill(logits, key);
    for (size_t i = 0; i < COUNT; i++) {
      logits[i] = key % 3 == 0 ? rintf(logits[i]) : logits[i];
      logits[i] = key % 4 == 0 && i % 5 == 0 ? -INFINITY : logits[i];
    }
    const struct pen_sampling sampling = {
        .temperature = 0.1 + 2 * pen_uniform(key, 2, 0),
        .top_k = key % 2 == 0 ? 0 : 1 + (uint64_t)(COUNT * pen_uniform(key, 2, 1)),
        .top_p = key % 5 == 0 ? 1 : pen_uniform(key, 2, 2),
        .min_p = key % 7 == 0 ? 0 : pen_uniform(key, 2, 3) * pen_uniform(key, 2, 4)};
    check_parts(logits, &sampling);
  }
}

/* Of 64 equal logits top_p keeps the lower half; min_p and top_k keep all that are equal. */
static void of_equals_the_lower_are_likelier(void **state) {
  (void)state;
  float logits[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    logits[i] = i % 25 < 16 ? 1 : -900;
  }
  struct pen_sampling sampling = {.temperature = 1, .top_k = 3, .top_p = 0.5, .min_p = 0.999};
  for (int i = 0; i < 32; i++) {
    assert_int_equal(pen_sample(logits, COUNT, &sampling, (i + 0.5) / 32, weights, order),
                     i / 16 * 25 + i % 16);
  }
  sampling.top_p = 1e-300;
  assert_int_equal(pen_sample(logits, COUNT, &sampling, 0.999, weights, order), 0);
  sampling = (struct pen_sampling){.temperature = 0, .top_k = 3, .top_p = 0.5, .min_p = 0.5};
  assert_int_equal(pen_sample(logits, COUNT, &sampling, 0.999, weights, order), 0);
}

static void what_is_no_number_does_no_harm_to_the_warpers(void **state) {
  (void)state;
  float logits[COUNT];
  const struct pen_sampling sampling = {.temperature = 1, .top_k = 9, .top_p = 0.5, .min_p = 0.1};
  for (size_t first = 0; first < 3; first++) {
    for (size_t i = 0; i < COUNT; i++) {
      const size_t kind = (i + first) % 3;
      logits[i] = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY;
    }
    assert_in_range(pen_sample(logits, COUNT, &sampling, 0.5, weights, order), 0, COUNT - 1);
  }
}

/* ---- repetition ---- */

static void repeated_tokens_are_penalised_once(void **state) {
  (void)state;
  static const double penalties[] = {0.5, 1, 1.3, 1e-300, 1e300};
  static const uint32_t tokens[] = {7, 3, 7, 99, 0, 3, 7, 50};
  float logits[COUNT], to[COUNT];
  fill(logits, 11);
  logits[50] = 0;
  for (int k = 0; k < 5; k++) {
    pen_penalise_repetition(to, logits, COUNT, tokens, 8, penalties[k]);
    for (size_t i = 0; i < COUNT; i++) {
      const bool has = i == 7 || i == 3 || i == 99 || i == 0 || i == 50;
      double wanted = (double)logits[i];
      if (has) {
        wanted = logits[i] > 0 ? wanted / penalties[k] : wanted * penalties[k];
      }
      assert_true(isfinite(to[i]));
      if (fabs(wanted) <= (double)FLT_MAX) {
        assert_true(to[i] == (float)wanted);
      } else {
        assert_true(fabsf(to[i]) == FLT_MAX && signbit(to[i]) == signbit(logits[i]));
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_even),
      cmocka_unit_test(parts_are_softmax),
      cmocka_unit_test(temperature_zero_takes_the_likeliest),
      cmocka_unit_test(equals_and_what_is_no_number_are_drawn_from_without_harm),
      cmocka_unit_test(parts_are_those_of_the_warpers),
      cmocka_unit_test(of_equals_the_lower_are_likelier),
      cmocka_unit_test(what_is_no_number_does_no_harm_to_the_warpers),
      cmocka_unit_test(repeated_tokens_are_penalised_once),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
