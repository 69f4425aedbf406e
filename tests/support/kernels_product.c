/* kernels_product.c: products of bf16 against sums in f64. */
#include "tests/support/kernels_product.h"

/* Some shapes are divided into blocks, PEN_PRODUCT_BLOCK a side; the last ones have a k above
 * PEN_PAIR_DEPTH, also odd; some have rows of whole pages. */
static const int64_t shapes[][3] = {{1, 1, 1},       {3, 17, 5},     {33, 7, 65},    {130, 70, 259},
                                    {600, 40, 30},   {20, 1100, 30}, {20, 30, 1030}, {40, 50, 24},
                                    {50, 1024, 6},   {4, 18, 1024},  {2, 2, 2},      {1602, 5, 7},
                                    {515, 2048, 18}, {5, 530, 2048}, {9, 1601, 530}, {9, 20, 1601}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct bf16_pair bf16_numbers(int64_t count, uint64_t seed) {
  struct bf16_pair p = {.half = halves(random_floats((size_t)count, seed), (size_t)count)};
  p.wide = floats_of(p.half, (size_t)count);
  return p;
}

void add_product(double *sum, const float *a, int64_t a_row, int64_t a_column, const float *b,
                 int64_t b_row, int64_t b_column, int64_t m, int64_t n, int64_t depth) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t k = 0; k < depth; k++)
        sum[i * n + j] += (double)a[i * a_row + k * a_column] * (double)b[k * b_row + j * b_column];
}

void check_bf16(const char *what, const uint16_t *actual, const double *expected, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, fabs(expected[i]));
  for (size_t i = 0; i < count; i++)
    if (!(fabs((double)float_of(actual[i]) - expected[i]) <=
          0x1p-8 * fabs(expected[i]) + 2e-6 * most))
      fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, (double)float_of(actual[i]), expected[i]);
}

/* An op that returns an activation: without an addend, with a separate one, with the output as
 * addend. `bias` null: the op has none. */
static void check_addends(enum pen_op_kind kind, const int64_t *dim, const struct bf16_pair *left,
                          const struct bf16_pair *right, const float *bias, const double *product,
                          int64_t m, int64_t n) {
  const size_t count = (size_t)(m * n);
  const struct bf16_pair addend = bf16_numbers(m * n, 3);
  for (int with = 0; with < 3; with++) {
    uint16_t *out = with == 2 ? halves(addend.wide, count) : bytes_at(count * sizeof *out, 0);
    uint16_t *third = with == 0 ? NULL : with == 1 ? addend.half : out;
    struct pen_call call = {.operand = {left->half, right->half, third, out},
                            .dim = {dim[0], dim[1], dim[2]}};
    if (bias)
      call.operand[2] = (void *)(uintptr_t)bias, call.operand[3] = third, call.operand[4] = out;
    double *expected = doubles(count);
    for (size_t i = 0; i < count; i++)
      expected[i] = product[i] + (with ? (double)addend.wide[i] : 0) +
                    (bias ? (double)bias[i % (size_t)n] : 0);
    run_product(kind, &call);
    check_bf16(op_rows[kind].name, out, expected, count);
  }
}

static double *zeros(int64_t count) {
  return memset(doubles((size_t)count), 0, (size_t)count * sizeof(double));
}

void forward_and_input_gradient(void **state) {
  for (int s = 0; s < SHAPES; s++)
    for (int affine = 0; affine < 2; affine++) {
      const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
      const struct bf16_pair x = bf16_numbers(rows * in, 1), w = bf16_numbers(in * out, 2),
                             dy = bf16_numbers(rows * out, 4);
      const int64_t w_in = affine ? out : 1,
                    w_out = affine ? 1 : in; /* strides of w by in and by out */
      double *y = zeros(rows * out), *dx = zeros(rows * in);
      add_product(y, x.wide, in, 1, w.wide, w_in, w_out, rows, out, in);
      add_product(dx, dy.wide, out, 1, w.wide, w_out, w_in, rows, in, out);
      const float *bias = affine ? random_floats((size_t)out, 5) : NULL;
      check_addends(affine ? PEN_OP_AFFINE : PEN_OP_LINEAR, shapes[s], &x, &w, bias, y, rows, out);
      check_addends(affine ? PEN_OP_AFFINE_DX : PEN_OP_LINEAR_DX, shapes[s], &dy, &w, NULL, dx,
                    rows, in);
      free_tensors(state);
    }
}

void weight_gradient_accumulates(void **state) {
  for (int s = 0; s < SHAPES; s++)
    for (int affine = 0; affine < 2; affine++) {
      const int64_t rows = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
      const size_t count = (size_t)(in * out);
      const struct bf16_pair x = bf16_numbers(rows * in, 1), dy = bf16_numbers(rows * out, 4);
      float *dw = random_floats(count, 6);
      double *expected = widened(dw, count);
      if (affine)
        add_product(expected, x.wide, 1, in, dy.wide, out, 1, in, out, rows);
      else
        add_product(expected, dy.wide, 1, out, x.wide, in, 1, out, in, rows);
      struct pen_call call = {.operand = {dy.half, x.half, dw}, .dim = {rows, in, out}};
      run_product(affine ? PEN_OP_AFFINE_DW : PEN_OP_LINEAR_DW, &call);
      assert_near("dw", dw, expected, count, 2e-6, 1);
      free_tensors(state);
    }
}
