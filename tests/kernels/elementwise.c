/* elementwise.c: SCALE, ADD, ACCUMULATE, SWIGLU, GEGLU, GELU, GELU_TANH and their gradients, each
 * element against f64. */
#include "tests/support/kernels_support.h"

static const size_t counts[] = {1, 2, 7, 8, 15, 16, 31, 1003};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Values from -12 to 12 and, at the start, some edge cases. */
static float *arguments(size_t count, uint64_t seed) {
  static const float special[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 88.0f, -88.0f, 30.0f, -30.0f};
  float *x = random_floats(count, seed);
  for (size_t i = 0; i < count; i++)
    x[i] = count > 500 && i < 8 && seed == 1 ? special[i] : 12 * x[i];
  return x;
}

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double swish(double x) { return x * logistic(x); }
static double swish_slope(double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }
static double gauss(double x) { return x * 0.5 * erfc(-x / sqrt(2)); }
static double gauss_slope(double x) {
  return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static double curved(double x) { return 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x); }
static double tanh_gauss(double x) { return x * logistic(curved(x)); }
static double tanh_gauss_slope(double x) {
  return logistic(curved(x)) *
         (1 + x * logistic(-curved(x)) * 2 * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x));
}

static void derivatives_agree_with_finite_differences(void **state) {
  (void)state;
  for (double x = -9; x < 9; x += 0.37) {
    assert_true(fabs((swish(x + 1e-5) - swish(x - 1e-5)) / 2e-5 - swish_slope(x)) < 1e-8);
    assert_true(fabs((gauss(x + 1e-5) - gauss(x - 1e-5)) / 2e-5 - gauss_slope(x)) < 1e-8);
    assert_true(fabs((tanh_gauss(x + 1e-5) - tanh_gauss(x - 1e-5)) / 2e-5 - tanh_gauss_slope(x)) <
                1e-8);
    assert_true(fabs(tanh_gauss(x) - x * (1 + tanh(curved(x) / 2)) / 2) < 1e-14);
  }
}

static void scale_add_accumulate(void **state) {
  for (int c = 0; c < COUNTS; c++) {
    const size_t n = counts[c];
    float *x = arguments(n, 1), *z = arguments(n, 2), *y = floats(n), *sum = copy_of(z, n),
          *scaled = floats(n);
    struct pen_call scale = {.operand = {x, scaled}, .dim = {(int64_t)n}, .real = {1.05}};
    struct pen_call add = {.operand = {x, z, y}, .dim = {(int64_t)n}};
    struct pen_call accumulate = {.operand = {x, sum}, .dim = {(int64_t)n}};
    run(PEN_OP_SCALE, &scale);
    run(PEN_OP_ADD, &add);
    run(PEN_OP_ACCUMULATE, &accumulate);
    for (size_t i = 0; i < n; i++) {
      assert_true(scaled[i] == 1.05f * x[i]);
      assert_true(y[i] == x[i] + z[i] && sum[i] == y[i]);
    }
    free_tensors(state);
  }
}

struct unit_case {
  enum pen_op_kind kind, gradient_kind;
  double (*f)(double), (*slope)(double);
  double tolerance, share; /* as those of an activation */
  double gradient_tolerance;
};

static void check_linear_unit(const struct unit_case *u) {
  for (int c = 0; c < COUNTS; c++) {
    const size_t n = counts[c];
    float *gate = arguments(n, 1), *up = arguments(n, 2), *dy = arguments(n, 3), *y = floats(n);
    double *expected[3] = {doubles(n), doubles(n), doubles(n)};
    for (size_t i = 0; i < n; i++) {
      expected[0][i] = u->f((double)gate[i]) * (double)up[i];
      expected[1][i] = (double)dy[i] * (double)up[i] * u->slope((double)gate[i]);
      expected[2][i] = (double)dy[i] * u->f((double)gate[i]);
    }
    struct pen_call call = {.operand = {gate, up, y}, .dim = {(int64_t)n}};
    run(u->kind, &call);
    struct pen_call back = {.operand = {dy, gate, up, gate, up}, .dim = {(int64_t)n}};
    run(u->gradient_kind, &back);
    assert_near("y", y, expected[0], n, u->tolerance, u->share);
    assert_near("dgate", gate, expected[1], n, u->gradient_tolerance, 1e-2);
    assert_near("dup", up, expected[2], n, u->tolerance, u->share);
  }
}

static void swiglu_and_gradient(void **state) {
  check_linear_unit(
      &(struct unit_case){PEN_OP_SWIGLU, PEN_OP_SWIGLU_DX, swish, swish_slope, 5e-7, 1e-9, 1e-6});
  free_tensors(state);
}

static void geglu_and_gradient(void **state) {
  check_linear_unit(&(struct unit_case){PEN_OP_GEGLU, PEN_OP_GEGLU_DX, tanh_gauss, tanh_gauss_slope,
                                        1e-6, 1e-2, 2e-6});
  free_tensors(state);
}

struct activation {
  enum pen_op_kind kind, gradient_kind;
  double (*f)(double), (*slope)(double);
  double tolerance, share; /* of y: relative; and of the tails, relative to the maximum */
  double gradient_tolerance;
};

static void check_activation(const struct activation *a) {
  for (int c = 0; c < COUNTS; c++) {
    const size_t n = counts[c];
    float *x = arguments(n, 1), *dy = arguments(n, 3), *y = floats(n);
    double *expected[2] = {doubles(n), doubles(n)};
    for (size_t i = 0; i < n; i++) {
      expected[0][i] = a->f((double)x[i]);
      expected[1][i] = (double)dy[i] * a->slope((double)x[i]);
    }
    struct pen_call call = {.operand = {x, y}, .dim = {(int64_t)n}};
    run(a->kind, &call);
    struct pen_call back = {.operand = {dy, x, x}, .dim = {(int64_t)n}};
    run(a->gradient_kind, &back);
    assert_near("y", y, expected[0], n, a->tolerance, a->share);
    assert_near("dx", x, expected[1], n, a->gradient_tolerance, 1e-2);
  }
}

static void gelu_and_gradient(void **state) {
  check_activation(
      &(struct activation){PEN_OP_GELU, PEN_OP_GELU_DX, gauss, gauss_slope, 5e-7, 1e-9, 1e-6});
  free_tensors(state);
}

/* An error of 1 unit in the last place of 2u is an error of 2u units of e^2u: the tails lose
 * precision, but are small. */
static void gelu_tanh_and_gradient(void **state) {
  check_activation(&(struct activation){PEN_OP_GELU_TANH, PEN_OP_GELU_TANH_DX, tanh_gauss,
                                        tanh_gauss_slope, 1e-6, 1e-2, 2e-6});
  free_tensors(state);
}

/* The distribution function of GELU over a fine grid, six deviations to either side. */
static void gelu_is_exact_in_f32(void **state) {
  (void)state;
  enum { GRID = 200001 };
  float *x = floats(GRID), *y = floats(GRID);
  double *expected = doubles(GRID);
  for (int i = 0; i < GRID; i++) {
    x[i] = (float)(i - GRID / 2) * 5e-5f;
    expected[i] = gauss((double)x[i]);
  }
  struct pen_call call = {.operand = {x, y}, .dim = {GRID}};
  run(PEN_OP_GELU, &call);
  assert_near("y", y, expected, GRID, 4e-7, 1e-9);
}

/* The largest and smallest numbers give the result of the formula, no NaN from an intermediate
 * overflow. */
static void extreme_values_give_no_nan(void **state) {
  (void)state;
  float *x = floats(4), *one = floats(4), *y = floats(4);
  const float values[] = {3e38f, -3e38f, 1e-40f, INFINITY};
  for (int i = 0; i < 4; i++) x[i] = values[i], one[i] = 1;
  struct pen_call unit = {.operand = {x, one, y}, .dim = {4}},
                  gelu = {.operand = {x, y}, .dim = {4}};
  run(PEN_OP_SWIGLU, &unit);
  assert_true(y[0] == 3e38f && y[1] == 0 && y[2] >= 0 && y[2] <= 1e-40f && isinf(y[3]));
  run(PEN_OP_GEGLU, &unit);
  assert_true(y[0] == 3e38f && y[1] == 0 && y[2] >= 0 && y[2] <= 1e-40f && isinf(y[3]));
  run(PEN_OP_GELU, &gelu);
  assert_true(y[0] == 3e38f && y[1] == 0 && y[2] >= 0 && y[2] <= 1e-40f && isinf(y[3]));
  run(PEN_OP_GELU_TANH, &gelu);
  assert_true(y[0] == 3e38f && y[1] == 0 && y[2] >= 0 && y[2] <= 1e-40f && isinf(y[3]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(derivatives_agree_with_finite_differences),
      cmocka_unit_test(scale_add_accumulate),
      cmocka_unit_test(swiglu_and_gradient),
      cmocka_unit_test(geglu_and_gradient),
      cmocka_unit_test(gelu_and_gradient),
      cmocka_unit_test(gelu_tanh_and_gradient),
      cmocka_unit_test(gelu_is_exact_in_f32),
      cmocka_unit_test(extreme_values_give_no_nan),
  };
  return RUN_ON_EVERY_SET(tests);
}
