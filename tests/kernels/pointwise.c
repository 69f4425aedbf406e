/* pointwise.c: POINTWISE: each step against f64, on ordinary and on extreme numbers; rows and
 * columns that broadcast; registers and constants. contract.c, threads.c and rows.c have its bits.
 */
#include "tests/support/kernels_support.h"

enum { X0, X1, X2, X3, R0, R1, C0, C1, DY, REGISTER }; /* inputs of steps */

/* ---- each step ---- */

struct step_case {
  enum pen_step_kind kind;
  double (*f)(double a, double b, double c);
  float a[2], b[2]; /* bounds of a and b */
  double tolerance; /* of the value; 0: exact */
};

#define F(name, value)                               \
  static double name(double a, double b, double c) { \
    (void)a, (void)b, (void)c;                       \
    return value;                                    \
  }
F(sum, a + b)
F(difference, a - b)
F(product, a *b)
F(quotient, a / b)
F(negative, -a)
F(power, exp(a))
F(logarithm, log(a))
F(hyperbolic, tanh(a))
F(root, sqrt(a))
F(reciprocal_root, 1 / sqrt(a))
F(logistic, 1 / (1 + exp(-a)))
F(soft_plus, a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)))
F(error_function, erf(a))
F(rectified, a > 0 ? a : 0)
F(magnitude, fabs(a))
F(square, a *a)
F(greater, fmax(a, b))
F(lesser, fmin(a, b))
F(is_less, a < b)
F(is_at_most, a <= b)
F(is_equal, a == b)
F(chosen, a != 0 ? b : c)
F(chained, a != 0 ? a * b : 0)
F(same, a)

static const struct step_case cases[] = {
    {PEN_STEP_ADD, sum, {-9, 9}, {-9, 9}, 6e-8},
    {PEN_STEP_SUB, difference, {-9, 9}, {-9, 9}, 6e-8},
    {PEN_STEP_MUL, product, {-9, 9}, {-9, 9}, 6e-8},
    {PEN_STEP_DIV, quotient, {-9, 9}, {0.1f, 9}, 6e-8},
    {PEN_STEP_NEG, negative, {-9, 9}, {0, 0}, 0},
    {PEN_STEP_EXP, power, {-87, 88.7f}, {0, 0}, 4e-7},
    {PEN_STEP_LOG, logarithm, {1e-6f, 9}, {0, 0}, 3e-7},
    {PEN_STEP_LOG, logarithm, {0.99f, 1.01f}, {0, 0}, 3e-7},
    {PEN_STEP_TANH, hyperbolic, {-12, 12}, {0, 0}, 5e-7},
    {PEN_STEP_TANH, hyperbolic, {-0.01f, 0.01f}, {0, 0}, 5e-7},
    {PEN_STEP_SQRT, root, {0, 9}, {0, 0}, 6e-8},
    {PEN_STEP_RSQRT, reciprocal_root, {0.01f, 9}, {0, 0}, 2e-7},
    {PEN_STEP_SIGMOID, logistic, {-80, 80}, {0, 0}, 5e-7},
    {PEN_STEP_SOFTPLUS, soft_plus, {-80, 80}, {0, 0}, 5e-7},
    {PEN_STEP_ERF, error_function, {-5, 5}, {0, 0}, 5e-7},
    {PEN_STEP_ERF, error_function, {-0.6f, 0.6f}, {0, 0}, 5e-7},
    {PEN_STEP_RELU, rectified, {-9, 9}, {0, 0}, 0},
    {PEN_STEP_ABS, magnitude, {-9, 9}, {0, 0}, 0},
    {PEN_STEP_SQUARE, square, {-9, 9}, {0, 0}, 6e-8},
    {PEN_STEP_MAX, greater, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_MIN, lesser, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_CLAMP_MIN, greater, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_CLAMP_MAX, lesser, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_LESS, is_less, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_LESS_EQUAL, is_at_most, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_EQUAL, is_equal, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_WHERE, chosen, {-9, 9}, {-9, 9}, 0},
    {PEN_STEP_CHAIN, chained, {-9, 9}, {-9, 9}, 6e-8},
    {PEN_STEP_COPY, same, {-9, 9}, {0, 0}, 0},
};
enum { CASES = sizeof cases / sizeof *cases, COUNT = 1203 };

/* Within the bounds; both ends, and every seventh time 0. */
static float *within(const float bounds[2], uint64_t seed) {
  float *x = random_floats(COUNT, seed);
  for (size_t i = 0; i < COUNT; i++) {
    x[i] = bounds[0] + (x[i] + 1) / 2 * (bounds[1] - bounds[0]);
    if (i % 7 == 3 && bounds[0] <= 0) x[i] = 0;
  }
  x[0] = bounds[0], x[1] = bounds[1];
  return x;
}

/* y = STEP(x0, x1, x2) of so many elements. */
static void run_step(enum pen_step_kind kind, const float *a, const float *b, const float *c,
                     float *y, size_t count) {
  const uint8_t one = (uint8_t)kind, to = 0, first = X0, second = X1, third = X2;
  const double number = 0;
  struct pen_call call = {.operand = {(void *)a, (void *)b, (void *)c, [PEN_STEP_OPERANDS - 1] = y},
                          .dim = {1, (int64_t)count},
                          .steps = {1, 0, &one, &to, &first, &second, &third, &number}};
  run(PEN_OP_POINTWISE, &call);
}

static void each_step_is_its_formula(void **state) {
  bool has_case[PEN_STEP_KINDS] = {[PEN_STEP_CONST] = true};
  for (size_t n = 0; n < CASES; n++) {
    const struct step_case *of = &cases[n];
    const float any[2] = {-9, 9};
    float *a = within(of->a, 1), *b = within(of->b, 2), *c = within(any, 3), *y = floats(COUNT);
    run_step(of->kind, a, b, c, y, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
      const double wanted = of->f((double)a[i], (double)b[i], (double)c[i]);
      if (!(fabs((double)y[i] - wanted) <= of->tolerance * fabs(wanted) + 1e-37))
        fail_msg("case %zu: of %.9g, %.9g it is %.9g, not %.9g", n, (double)a[i], (double)b[i],
                 (double)y[i], wanted);
    }
    has_case[of->kind] = true;
    free_tensors(state);
  }
  for (int kind = 0; kind < PEN_STEP_KINDS; kind++)
    if (!has_case[kind]) fail_msg("step %d has no case", kind);
}

static void extreme_numbers(void **state) {
  static const struct {
    enum pen_step_kind kind;
    float a, b, y;
  } of[] = {
      {PEN_STEP_EXP, 89, 0, INFINITY},
      {PEN_STEP_EXP, INFINITY, 0, INFINITY},
      {PEN_STEP_EXP, -INFINITY, 0, 0},
      {PEN_STEP_LOG, 0, 0, -INFINITY},
      {PEN_STEP_LOG, -1, 0, NAN},
      {PEN_STEP_LOG, INFINITY, 0, INFINITY},
      {PEN_STEP_LOG, 1, 0, 0},
      {PEN_STEP_TANH, INFINITY, 0, 1},
      {PEN_STEP_TANH, -3e38f, 0, -1},
      {PEN_STEP_SIGMOID, -INFINITY, 0, 0},
      {PEN_STEP_SOFTPLUS, 3e38f, 0, 3e38f},
      {PEN_STEP_SOFTPLUS, -INFINITY, 0, 0},
      {PEN_STEP_ERF, INFINITY, 0, 1},
      {PEN_STEP_RSQRT, 0, 0, INFINITY},
      {PEN_STEP_MAX, NAN, 1, NAN},
      {PEN_STEP_MAX, 1, NAN, NAN},
      {PEN_STEP_MIN, NAN, 1, NAN},
      {PEN_STEP_MIN, 1, NAN, NAN},
      {PEN_STEP_RELU, NAN, 0, NAN},
      {PEN_STEP_CLAMP_MIN, NAN, 1, NAN},
      {PEN_STEP_CLAMP_MAX, NAN, 1, NAN},
      {PEN_STEP_LESS, NAN, 1, 0},
      {PEN_STEP_CHAIN, 0, INFINITY, 0},
      {PEN_STEP_CHAIN, 0, NAN, 0},
      {PEN_STEP_EXP, NAN, 0, NAN},
      {PEN_STEP_TANH, NAN, 0, NAN},
      {PEN_STEP_LOG, NAN, 0, NAN},
      {PEN_STEP_SOFTPLUS, NAN, 0, NAN},
      {PEN_STEP_ERF, NAN, 0, NAN},
      {PEN_STEP_SIGMOID, NAN, 0, NAN},
  };
  for (size_t n = 0; n < sizeof of / sizeof *of; n++) {
    float *a = floats(1), *b = floats(1), *y = floats(1);
    *a = of[n].a, *b = of[n].b;
    run_step(of[n].kind, a, b, b, y, 1);
    if (!(*y == of[n].y || (isnan(*y) && isnan(of[n].y))))
      fail_msg("number %zu: %.9g, not %.9g", n, (double)*y, (double)of[n].y);
    free_tensors(state);
  }
}

/* ---- operands, registers, constants ---- */

/* 0.25 (x0 r0 + c0) - r1 c1, with a constant after steps, whose register is its own. */
static void operands_broadcast(void **state) {
  static const int64_t shapes[][2] = {{1, 1}, {7, 1}, {1, 700}, {37, 41}, {3, 512}, {2, 1025}};
  static const uint8_t kind[] = {PEN_STEP_MUL,   PEN_STEP_ADD, PEN_STEP_MUL,
                                 PEN_STEP_CONST, PEN_STEP_MUL, PEN_STEP_SUB},
                       to[] = {1, 1, 2, 0, 1, 0},
                       a[] = {X0, REGISTER + 1, R1, 0, REGISTER, REGISTER + 1},
                       b[] = {R0, C0, C1, 0, REGISTER + 1, REGISTER + 2};
  static const double number[] = {0, 0, 0, 0.25, 0, 0};
  for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
    const size_t rows = (size_t)shapes[n][0], width = (size_t)shapes[n][1];
    float *x = random_floats(rows * width, 1), *r0 = random_floats(width, 2),
          *r1 = random_floats(width, 3), *c0 = random_floats(rows, 4), *c1 = random_floats(rows, 5),
          *y = floats(rows * width);
    struct pen_call call = {.operand = {[X0] = x, [R0] = r0, r1, c0, c1, y},
                            .dim = {shapes[n][0], shapes[n][1]},
                            .steps = {6, 3, kind, to, a, b, b, number}};
    run(PEN_OP_POINTWISE, &call);
    for (size_t i = 0; i < rows * width; i++) {
      const float left = 0.25f * (x[i] * r0[i % width] + c0[i / width]),
                  right = r1[i % width] * c1[i / width];
      if (y[i] != left - right) fail_msg("shape %zu, element %zu", n, i);
    }
    free_tensors(state);
  }
}

static void rows_are_summed(void **state) {
  enum { ROWS = 5, WIDTH = 203 };
  for (int is_mean = 0; is_mean < 2; is_mean++) {
    float *x = random_floats(ROWS * WIDTH, 1), *y = floats(ROWS), *dx = floats(ROWS * WIDTH);
    double *sum = memset(doubles(ROWS), 0, ROWS * sizeof *sum), by = is_mean ? WIDTH : 1;
    for (size_t i = 0; i < ROWS * WIDTH; i++) sum[i / WIDTH] += (double)x[i] / by;
    struct pen_call call = {.operand = {x, y}, .dim = {ROWS, WIDTH}},
                    back = {.operand = {y, dx}, .dim = {ROWS, WIDTH}};
    run(is_mean ? PEN_OP_ROW_MEAN : PEN_OP_ROW_SUM, &call);
    run(is_mean ? PEN_OP_ROW_MEAN_DX : PEN_OP_ROW_SUM_DX, &back);
    assert_near("y", y, sum, ROWS, 2e-6, 1);
    for (size_t i = 0; i < ROWS * WIDTH; i++) assert_true(dx[i] == y[i / WIDTH] / (float)by);
    free_tensors(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_step_is_its_formula),
      cmocka_unit_test(extreme_numbers),
      cmocka_unit_test(operands_broadcast),
      cmocka_unit_test(rows_are_summed),
  };
  return RUN_ON_EVERY_SET(tests);
}
