/* kernels_matmul.c: LINEAR, LINEAR_DX and LINEAR_DW against sums in f64. */
#include "tests/kernels_support.h"

static const int64_t shapes[][3] = { { 1, 1, 1 }, { 1, 17, 5 }, { 3, 1, 4 }, { 33, 7, 65 }, { 64, 256, 128 }, { 130, 70, 259 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* expected[i,j] = sum over k of a(i,k) b(k,j) + start[i,j], with strides for both factors */
static double *reference(const float *a, const int64_t a_step[2], const float *b, const int64_t b_step[2],
                         const float *start, const int64_t size[3]) {
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

/* One op without addend, with one apart, with one in the output's place. */
static void check_addends(enum pen_op_kind kind, const int64_t *dim, float *left, float *right, const int64_t a_step[2],
                          const int64_t b_step[2], const int64_t size[3]) {
  const size_t count = (size_t)(size[0] * size[1]);
  float *addend = random_floats(count, 3);
  for (int with = 0; with < 3; with++) {
    float *out = with == 2 ? copy_of(addend, count) : floats(count);
    float *third = with == 0 ? NULL : with == 1 ? addend : out;
    struct pen_call call = { .operand = { left, right, third, out }, .dim = { dim[0], dim[1], dim[2] } };
    run(kind, &call);
    assert_near(op_rows[kind].name, out, reference(left, a_step, right, b_step, with ? addend : NULL, size), count, 2e-6,
                1);
  }
}

static void linear_is_x_times_w_transposed(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *x = random_floats((size_t)(rows * in), 1), *w = random_floats((size_t)(out * in), 2);
    check_addends(PEN_OP_LINEAR, shapes[s], x, w, (int64_t[]){ in, 1 }, (int64_t[]){ 1, in }, (int64_t[]){ rows, out, in });
    free_tensors(state);
  }
}

static void input_gradient_is_dy_times_w(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *dy = random_floats((size_t)(rows * out), 1), *w = random_floats((size_t)(out * in), 2);
    check_addends(PEN_OP_LINEAR_DX, shapes[s], dy, w, (int64_t[]){ out, 1 }, (int64_t[]){ in, 1 },
                  (int64_t[]){ rows, in, out });
    free_tensors(state);
  }
}

static void weight_gradient_adds_up(void **state) {
  for (int s = 0; s < SHAPES; s++) {
    const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
    float *dy = random_floats((size_t)(rows * out), 1), *x = random_floats((size_t)(rows * in), 2);
    float *start = random_floats((size_t)(out * in), 3), *dw = copy_of(start, (size_t)(out * in));
    struct pen_call call = { .operand = { dy, x, dw }, .dim = { rows, in, out } };
    run(PEN_OP_LINEAR_DW, &call);
    assert_near("dw", dw,
                reference(dy, (int64_t[]){ 1, out }, x, (int64_t[]){ in, 1 }, start, (int64_t[]){ out, in, rows }),
                (size_t)(out * in), 2e-6, 1);
    free_tensors(state);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(linear_is_x_times_w_transposed),
    cmocka_unit_test(input_gradient_is_dy_times_w),
    cmocka_unit_test(weight_gradient_adds_up),
  };
  return RUN_ON_EVERY_SET(tests);
}
