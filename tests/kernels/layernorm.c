/* layernorm.c: LAYERNORM and its gradient against f64; the f64 gradient is by finite differences.
 */
#include "tests/support/kernels_support.h"

static const size_t shapes[][2] = {{1, 2}, {1, 8}, {3, 5}, {2, 33}, {5, 64}, {2, 131}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const double epsilon = 1e-5;

/* The sum of dy y over all rows, y = LAYERNORM(x, gain, bias): LAYERNORM_DX must give its
 * derivatives. A null gain is 1, a null bias 0. */
struct layernorm_case {
  size_t rows, width;
  double *x, *gain, *bias, *dy;
};

static double mean_of(const double *x, size_t width) {
  double sum = 0;
  for (size_t i = 0; i < width; i++) sum += x[i];
  return sum / (double)width;
}

static double rstd_of(const double *x, size_t width) {
  const double mean = mean_of(x, width);
  double sum = 0;
  for (size_t i = 0; i < width; i++) sum += (x[i] - mean) * (x[i] - mean);
  return 1 / sqrt(sum / (double)width + epsilon);
}

static double weighted(const struct layernorm_case *p, double normed, size_t i) {
  return normed * (p->gain ? p->gain[i] : 1) + (p->bias ? p->bias[i] : 0);
}

static double output(const struct layernorm_case *p, size_t r, size_t i) {
  const double *x = p->x + r * p->width;
  return weighted(p, (x[i] - mean_of(x, p->width)) * rstd_of(x, p->width), i);
}

static double weighted_sum(const void *context) {
  const struct layernorm_case *p = context;
  double sum = 0;
  for (size_t r = 0; r < p->rows; r++) {
    const double *x = p->x + r * p->width, mean = mean_of(x, p->width), rstd = rstd_of(x, p->width);
    for (size_t i = 0; i < p->width; i++)
      sum += p->dy[r * p->width + i] * weighted(p, (x[i] - mean) * rstd, i);
  }
  return sum;
}

enum { GAIN = 1, BIAS = 2, BOTH = GAIN | BIAS };

/* x is shifted by `offset`; the f64 results are of the f32 values after the shift. `has`: weights.
 */
static void check_forward(size_t rows, size_t width, float offset, double tolerance, int has) {
  const size_t count = rows * width;
  float *x = random_floats(count, 1), *gain = random_floats(width, 2),
        *bias = random_floats(width, 5);
  float *y = floats(count), *mean = floats(rows), *rstd = floats(rows);
  for (size_t i = 0; i < count; i++) x[i] += offset;
  struct pen_call call = {
      .operand = {x, has & GAIN ? gain : NULL, has & BIAS ? bias : NULL, y, mean, rstd},
      .dim = {(int64_t)rows, (int64_t)width},
      .real = {epsilon}};
  run(PEN_OP_LAYERNORM, &call);
  const struct layernorm_case p = {rows,
                                   width,
                                   widened(x, count),
                                   has & GAIN ? widened(gain, width) : NULL,
                                   has & BIAS ? widened(bias, width) : NULL,
                                   NULL};
  double *expected = doubles(count), *expected_mean = doubles(rows), *expected_rstd = doubles(rows);
  for (size_t r = 0; r < rows; r++) {
    expected_mean[r] = mean_of(p.x + r * width, width);
    expected_rstd[r] = rstd_of(p.x + r * width, width);
    for (size_t i = 0; i < width; i++) expected[r * width + i] = output(&p, r, i);
  }
  assert_near("y", y, expected, count, tolerance, 1);
  assert_near("mean", mean, expected_mean, rows, 1e-6, 1);
  assert_near("rstd", rstd, expected_rstd, rows, tolerance, 0);
}

static void forward_matches_the_formula(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    for (int has = 0; has <= BOTH; has++) check_forward(shapes[s][0], shapes[s][1], 0, 2e-6, has);
    free_tensors(state);
  }
}

/* A mean a hundred times the deviation: E[x^2] - mean^2 would lose four digits. */
static void large_means_lose_no_precision(void **state) {
  for (int s = 1; s < SHAPES; s++) {
    check_forward(shapes[s][0], shapes[s][1], 100, 4e-5, BOTH);
    free_tensors(state);
  }
}

static void check_gradient(size_t rows, size_t width, int with_addend, int has) {
  const size_t count = rows * width;
  float *x = random_floats(count, 1), *gain = random_floats(width, 2),
        *bias = random_floats(width, 5), *dy = random_floats(count, 3);
  float *a = random_floats(count, 4), *dx = copy_of(a, count), *dgain = floats(width),
        *dbias = floats(width);
  float *mean = floats(rows), *rstd = floats(rows);
  struct layernorm_case p = {rows,
                             width,
                             widened(x, count),
                             has & GAIN ? widened(gain, width) : NULL,
                             has & BIAS ? widened(bias, width) : NULL,
                             widened(dy, count)};
  for (size_t r = 0; r < rows; r++) {
    mean[r] = (float)mean_of(p.x + r * width, width);
    rstd[r] = (float)rstd_of(p.x + r * width, width);
  }
  struct pen_call call = {
      .operand = {dy, x, has & GAIN ? gain : NULL, mean, rstd, with_addend ? dx : NULL, dx,
                  has & GAIN ? dgain : NULL, has & BIAS ? dbias : NULL},
      .dim = {(int64_t)rows, (int64_t)width},
      .real = {epsilon}};
  run(PEN_OP_LAYERNORM_DX, &call);
  double *expected = doubles(count), *expected_gain = doubles(width),
         *expected_bias = doubles(width);
  differences(weighted_sum, &p, p.x, count, expected);
  if (has & GAIN) differences(weighted_sum, &p, p.gain, width, expected_gain);
  if (has & BIAS) differences(weighted_sum, &p, p.bias, width, expected_bias);
  for (size_t i = 0; with_addend && i < count; i++) expected[i] += (double)a[i];
  assert_near("dx", dx, expected, count, 4e-6, 1);
  if (has & GAIN) assert_near("dgain", dgain, expected_gain, width, 4e-6, 1);
  if (has & BIAS) assert_near("dbias", dbias, expected_bias, width, 4e-6, 1);
}

static void gradient_matches_finite_differences(void **state) {
  for (int s = 1; s < SHAPES; s++)
    for (int with = 0; with < 2 * (BOTH + 1); with++) {
      check_gradient(shapes[s][0], shapes[s][1], with % 2, with / 2);
      free_tensors(state);
    }
}

/* The previous values of the gradients of gain and bias are overwritten. */
static void weight_gradients_are_overwritten(void **state) {
  (void)state;
  float *x = random_floats(40, 1), *gain = random_floats(20, 2), *mean = random_floats(2, 3),
        *rstd = random_floats(2, 4);
  float *dgain = floats(20), *dbias = floats(20);
  struct pen_call call = {.operand = {x, x, gain, mean, rstd, NULL, floats(40), dgain, dbias},
                          .dim = {2, 20},
                          .real = {epsilon}};
  run(PEN_OP_LAYERNORM_DX, &call);
  float *gain_once = copy_of(dgain, 20), *bias_once = copy_of(dbias, 20);
  run(PEN_OP_LAYERNORM_DX, &call);
  assert_same_bits("dgain", gain_once, dgain, 20 * sizeof(float));
  assert_same_bits("dbias", bias_once, dbias, 20 * sizeof(float));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward_matches_the_formula),
      cmocka_unit_test(large_means_lose_no_precision),
      cmocka_unit_test(gradient_matches_finite_differences),
      cmocka_unit_test(weight_gradients_are_overwritten),
  };
  return RUN_ON_EVERY_SET(tests);
}
