/* matmul.c: LINEAR, LINEAR_DX and LINEAR_DW against f64 sums: Penstock's products, those of the
 * library, and the code for 64-byte vectors on any CPU (product_wide.c). */
#include "kernels/cpu/cpu.h"
#include "tests/support/kernels_support.h"

extern pen_multiply pen_wide_multiply;

/* The last shapes are divided into blocks on each side; some have rows of whole pages. */
static const int64_t shapes[][3] = {{1, 1, 1},      {1, 17, 5},     {3, 1, 4},      {33, 7, 65},
                                    {64, 256, 128}, {130, 70, 259}, {100, 1024, 9}, {7, 20, 1600},
                                    {5, 1025, 12},  {800, 6, 1024}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* expected[i,j] = sum over k of a(i,k) b(k,j) + start[i,j], with strides for both factors */
static double *reference(const float *a, const int64_t a_step[2], const float *b,
                         const int64_t b_step[2], const float *start, const int64_t size[3]) {
  double *expected = doubles((size_t)(size[0] * size[1]));
  for (int64_t i = 0; i < size[0]; i++)
    for (int64_t j = 0; j < size[1]; j++) {
      double sum = start ? (double)start[i * size[1] + j] : 0;
      for (int64_t k = 0; k < size[2]; k++)
        sum += (double)a[i * a_step[0] + k * a_step[1]] * (double)b[k * b_step[0] + j * b_step[1]];
      expected[i * size[1] + j] = sum;
    }
  return expected;
}

/* An op without an addend, with a separate one, with the output as addend. */
static void check_addends(enum pen_op_kind kind, const int64_t *dim, float *left, float *right,
                          const int64_t a_step[2], const int64_t b_step[2], const int64_t size[3]) {
  const size_t count = (size_t)(size[0] * size[1]);
  float *addend = random_floats(count, 3);
  for (int with = 0; with < 3; with++) {
    float *out = with == 2 ? copy_of(addend, count) : floats(count);
    float *third = with == 0 ? NULL : with == 1 ? addend : out;
    struct pen_call call = {.operand = {left, right, third, out}, .dim = {dim[0], dim[1], dim[2]}};
    run(kind, &call);
    assert_near(op_rows[kind].name, out,
                reference(left, a_step, right, b_step, with ? addend : NULL, size), count, 2e-6, 1);
  }
}

static void check_linear(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *x = random_floats((size_t)(rows * in), 1), *w = random_floats((size_t)(out * in), 2);
    check_addends(PEN_OP_LINEAR, shapes[s], x, w, (int64_t[]){in, 1}, (int64_t[]){1, in},
                  (int64_t[]){rows, out, in});
    free_tensors(state);
  }
}

static void check_input_gradient(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *dy = random_floats((size_t)(rows * out), 1), *w = random_floats((size_t)(out * in), 2);
    check_addends(PEN_OP_LINEAR_DX, shapes[s], dy, w, (int64_t[]){out, 1}, (int64_t[]){in, 1},
                  (int64_t[]){rows, in, out});
    free_tensors(state);
  }
}

static void check_weight_gradient(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *dy = random_floats((size_t)(rows * out), 1), *x = random_floats((size_t)(rows * in), 2);
    float *start = random_floats((size_t)(out * in), 3), *dw = copy_of(start, (size_t)(out * in));
    struct pen_call call = {.operand = {dy, x, dw}, .dim = {rows, in, out}};
    run(PEN_OP_LINEAR_DW, &call);
    assert_near("dw", dw,
                reference(dy, (int64_t[]){1, out}, x, (int64_t[]){in, 1}, start,
                          (int64_t[]){out, in, rows}),
                (size_t)(out * in), 2e-6, 1);
    free_tensors(state);
  }
}

/* Opens the instruction set again with Penstock's products or those of the library. */
static void open_products(const char *products) {
  setenv("PEN_PRODUCTS", products, 1);
  pen_kernels_open();
}

/* Runs a check for each implementation. */
static void check_by_all(void (*check)(void **), void **state) {
  open_products("own");
  check(state);
  pen_multiply_f32 = pen_wide_multiply;
  check(state);
  open_products("library");
  check(state);
}

static void linear_is_x_times_w_transposed(void **state) { check_by_all(check_linear, state); }
static void input_gradient_is_dy_times_w(void **state) {
  check_by_all(check_input_gradient, state);
}
static void weight_gradient_accumulates(void **state) {
  check_by_all(check_weight_gradient, state);
}

/* With Penstock's products the bits of an element do not depend on other rows and columns: a part
 * of x times a part of w is the part of y. */
static void an_element_depends_on_its_row_and_column_alone(void **state) {
  enum { ROWS = 101, IN = 500, OUT = 90 };
  open_products("own");
  float *x = random_floats(ROWS * IN, 1), *w = random_floats(OUT * IN, 2), *y = floats(ROWS * OUT),
        *part = floats(ROWS * OUT);
  struct pen_call whole = {.operand = {x, w, NULL, y}, .dim = {ROWS, IN, OUT}};
  run(PEN_OP_LINEAR, &whole);
  for (int64_t row = 1; row < ROWS; row += 17)
    for (int64_t column = 3; column < OUT; column += 29) {
      const int64_t rows = (ROWS - row + 1) / 2, out = (OUT - column + 2) / 3;
      struct pen_call call = {.operand = {x + row * IN, w + column * IN, NULL, part},
                              .dim = {rows, IN, out}};
      run(PEN_OP_LINEAR, &call);
      for (int64_t r = 0; r < rows; r++)
        assert_same_bits("part of y", part + r * out, y + (row + r) * OUT + column,
                         (size_t)out * sizeof *y);
    }
  free_tensors(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_is_x_times_w_transposed),
      cmocka_unit_test(input_gradient_is_dy_times_w),
      cmocka_unit_test(weight_gradient_accumulates),
      cmocka_unit_test(an_element_depends_on_its_row_and_column_alone),
  };
  return RUN_ON_EVERY_SET(tests);
}
