/* normal.c: pen_normal(): published vectors of Philox, moments, and values that depend on the index
 * alone. */
#include "tests/support/kernels_support.h"

enum { MANY = 1 << 20 };

static void check_vector(const uint32_t key[2], uint64_t first, const uint32_t word[4]) {
  float *y = floats(4);
  double *expected = doubles(4);
  pen_normal(y, 4, first, key, 1);
  for (int k = 0; k < 4; k += 2) {
    const double radius = sqrt(-2 * log(((double)word[k] + 0.5) / 4294967296.0));
    const double angle = 2 * acos(-1) * (double)word[k + 1] / 4294967296.0;
    expected[k] = radius * cos(angle);
    expected[k + 1] = radius * sin(angle);
  }
  assert_near("y", y, expected, 4, 1e-6, 0.1);
}

/* Known answers of Philox4x32-10 for a zero counter and a zero key (Random123, kat_vectors). */
static void philox_known_answer(void **state) {
  (void)state;
  check_vector((const uint32_t[]){0, 0}, 0,
               (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

static void value_depends_on_index_alone(void **state) {
  const uint32_t key[2] = {12, 34};
  float *whole = floats(300);
  pen_normal(whole, 300, 1000, key, 0.02);
  for (size_t first = 0; first < 40; first += 3)
    for (size_t count = 1; first + count < 300; count += 37) {
      float *part = floats(count);
      pen_normal(part, count, 1000 + first, key, 0.02);
      assert_same_bits("y", whole + first, part, count * sizeof(float));
      free_last_tensor();
    }
  (void)state;
}

/* Indices past 2^34 turn the upper word of the counter. */
static void far_indices_differ(void **state) {
  (void)state;
  const uint32_t key[2] = {12, 34};
  float *near = floats(64), *far = floats(64);
  pen_normal(near, 64, 0, key, 1);
  pen_normal(far, 64, (uint64_t)1 << 34, key, 1);
  for (int i = 0; i < 64; i++) assert_true(near[i] != far[i]);
}

static void moments_are_those_of_a_normal_distribution(void **state) {
  (void)state;
  float *y = floats(MANY);
  const uint32_t key[2] = {2024, 1};
  pen_normal(y, MANY, 0, key, 2);
  double sum[5] = {0}, lag = 0;
  size_t beyond = 0;
  for (int i = 0; i < MANY; i++) {
    double power = 1;
    for (int k = 0; k < 5; k++, power *= (double)y[i] / 2) sum[k] += power;
    lag += i ? (double)y[i] * (double)y[i - 1] / 4 : 0;
    beyond += fabsf(y[i]) > 4;
  }
  const double error = 1 / sqrt(MANY); /* five standard errors each */
  assert_true(fabs(sum[1] / MANY) < 5 * error);
  assert_true(fabs(sum[2] / MANY - 1) < 5 * error * sqrt(2));
  assert_true(fabs(sum[3] / MANY) < 5 * error * sqrt(15));
  assert_true(fabs(sum[4] / MANY - 3) < 5 * error * sqrt(96));
  assert_true(fabs(lag / MANY) < 5 * error);
  assert_true(fabs((double)beyond / MANY - 0.0455003) < 5 * error * 0.21);
}

static void keys_give_different_streams(void **state) {
  (void)state;
  float *a = floats(MANY), *b = floats(MANY);
  pen_normal(a, MANY, 0, (const uint32_t[]){5, 0}, 1);
  pen_normal(b, MANY, 0, (const uint32_t[]){5, 1}, 1);
  double product = 0;
  for (int i = 0; i < MANY; i++) product += (double)a[i] * (double)b[i];
  assert_true(fabs(product / MANY) < 5 / sqrt(MANY));
}

static void deviation_scales_values(void **state) {
  (void)state;
  const uint32_t key[2] = {7, 8};
  float *one = floats(100), *small = floats(100);
  double *expected = doubles(100);
  pen_normal(one, 100, 3, key, 1);
  pen_normal(small, 100, 3, key, 0.02);
  for (int i = 0; i < 100; i++) expected[i] = 0.02 * (double)one[i];
  assert_near("y", small, expected, 100, 2e-7, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_known_answer),
      cmocka_unit_test(value_depends_on_index_alone),
      cmocka_unit_test(far_indices_differ),
      cmocka_unit_test(moments_are_those_of_a_normal_distribution),
      cmocka_unit_test(keys_give_different_streams),
      cmocka_unit_test(deviation_scales_values),
  };
  return RUN_ON_EVERY_SET(tests);
}
