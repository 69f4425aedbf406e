/* kernels_product.h: LINEAR, AFFINE and their _DX and _DW with bf16 factors, against f64 sums of
 * the same numbers, for any implementation. */
#ifndef PEN_KERNELS_PRODUCT_H
#define PEN_KERNELS_PRODUCT_H

#include "tests/support/kernels_support.h"

/* Runs a bf16 product: the function under test, defined by the test program. */
void run_product(enum pen_op_kind kind, struct pen_call *call);

/* bf16 numbers in -1 .. 1, and the same in f32. */
struct bf16_pair {
  uint16_t *half;
  float *wide;
};

struct bf16_pair bf16_numbers(int64_t count, uint64_t seed);

/* sum[i,j] += sum over k of a(i,k) b(k,j); the strides of both factors by row and column */
void add_product(double *sum, const float *a, int64_t a_row, int64_t a_column, const float *b,
                 int64_t b_row, int64_t b_column, int64_t m, int64_t n, int64_t depth);

/* Rounding to bf16 changes a number by at most 2^-8; the f32 sum has an error of 2e-6 of the
 * maximum, as in f32 (matmul.c). */
void check_bf16(const char *what, const uint16_t *actual, const double *expected, size_t count);

/* y = x w^T, or x w; dx = dy w, or dy w^T */
void forward_and_input_gradient(void **state);

/* dw += dy^T x, or x^T dy: f32, with the accuracy of f32 */
void weight_gradient_accumulates(void **state);

#endif
