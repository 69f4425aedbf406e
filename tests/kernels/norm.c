/* norm.c: RMSNORM and its gradient against f64; the f64 gradient is by finite differences. */
#include "tests/support/kernels_support.h"

static const size_t shapes[][2] = {{1, 1}, {1, 8}, {3, 5}, {2, 33}, {5, 64}, {2, 131}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const double epsilon = 1e-5;

/* The sum of dy y over all rows, y = RMSNORM(x, gain): RMSNORM_DX must give its derivatives. A null
 * gain is 1. */
struct rmsnorm_case {
  size_t rows, width;
  double offset;
  double *x, *gain, *dy;
};

static double deviation(const double *x, size_t width) {
  double sum = 0;
  for (size_t i = 0; i < width; i++) sum += x[i] * x[i];
  return 1 / sqrt(sum / (double)width + epsilon);
}

static double gain_of(const struct rmsnorm_case *p, size_t i) {
  return (p->gain ? p->gain[i] : 1) + p->offset;
}

static double weighted_sum(const void *context) {
  const struct rmsnorm_case *p = context;
  double sum = 0;
  for (size_t r = 0; r < p->rows; r++) {
    const double *x = p->x + r * p->width, rstd = deviation(x, p->width);
    for (size_t i = 0; i < p->width; i++)
      sum += p->dy[r * p->width + i] * x[i] * rstd * gain_of(p, i);
  }
  return sum;
}

static void check_forward(double offset, int has_gain, void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const size_t rows = shapes[s][0], width = shapes[s][1], count = rows * width;
    float *x = random_floats(count, 1), *gain = random_floats(width, 2), *y = floats(count),
          *rstd = floats(rows);
    struct pen_call call = {.operand = {x, has_gain ? gain : NULL, y, rstd},
                            .dim = {(int64_t)rows, (int64_t)width},
                            .real = {epsilon, offset}};
    run(PEN_OP_RMSNORM, &call);
    double *wide = widened(x, count), *expected = doubles(count), *expected_rstd = doubles(rows);
    for (size_t r = 0; r < rows; r++) {
      expected_rstd[r] = deviation(wide + r * width, width);
      for (size_t i = 0; i < width; i++)
        expected[r * width + i] =
            wide[r * width + i] * expected_rstd[r] * ((has_gain ? (double)gain[i] : 1) + offset);
    }
    assert_near("y", y, expected, count, 5e-7, 0);
    assert_near("rstd", rstd, expected_rstd, rows, 5e-7, 0);
    free_tensors(state);
  }
}

static void forward_matches_the_formula(void **state) {
  check_forward(0, 1, state);
  check_forward(1, 1, state);
  check_forward(0, 0, state);
}

static void check_gradient(size_t rows, size_t width, int with_addend, double offset,
                           int has_gain) {
  const size_t count = rows * width;
  float *x = random_floats(count, 1), *gain = random_floats(width, 2),
        *dy = random_floats(count, 3);
  float *a = random_floats(count, 4), *dx = copy_of(a, count), *dgain = floats(width),
        *rstd = floats(rows);
  struct rmsnorm_case p = {rows,
                           width,
                           offset,
                           widened(x, count),
                           has_gain ? widened(gain, width) : NULL,
                           widened(dy, count)};
  for (size_t r = 0; r < rows; r++) rstd[r] = (float)deviation(p.x + r * width, width);
  struct pen_call call = {.operand = {dy, x, has_gain ? gain : NULL, rstd, with_addend ? dx : NULL,
                                      dx, has_gain ? dgain : NULL},
                          .dim = {(int64_t)rows, (int64_t)width},
                          .real = {epsilon, offset}};
  run(PEN_OP_RMSNORM_DX, &call);
  double *expected = doubles(count), *expected_gain = doubles(width);
  differences(weighted_sum, &p, p.x, count, expected);
  if (has_gain) differences(weighted_sum, &p, p.gain, width, expected_gain);
  for (size_t i = 0; with_addend && i < count; i++) expected[i] += (double)a[i];
  assert_near("dx", dx, expected, count, 4e-6, 1);
  if (has_gain) assert_near("dgain", dgain, expected_gain, width, 4e-6, 1);
}

static void gradient_matches_finite_differences(void **state) {
  for (int s = 1; s < SHAPES; s++)
    for (int with = 0; with < 6; with++) {
      check_gradient(shapes[s][0], shapes[s][1], with % 2, with / 2 == 1, with < 4);
      free_tensors(state);
    }
}

/* The rows of a microbatch make one gain gradient: what stood there before is written over. */
static void gain_gradient_is_overwritten(void **state) {
  (void)state;
  float *x = random_floats(40, 1), *gain = random_floats(20, 2), *rstd = random_floats(2, 3),
        *dgain = floats(20);
  struct pen_call call = {
      .operand = {x, x, gain, rstd, NULL, floats(40), dgain}, .dim = {2, 20}, .real = {epsilon}};
  run(PEN_OP_RMSNORM_DX, &call);
  float *once = copy_of(dgain, 20);
  run(PEN_OP_RMSNORM_DX, &call);
  assert_same_bits("dgain", once, dgain, 20 * sizeof(float));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward_matches_the_formula),
      cmocka_unit_test(gradient_matches_finite_differences),
      cmocka_unit_test(gain_gradient_is_overwritten),
  };
  return RUN_ON_EVERY_SET(tests);
}
