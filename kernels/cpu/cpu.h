/* cpu.h: what the files of the CPU backend share with each other. */
#ifndef PEN_CPU_H
#define PEN_CPU_H

#include "kernels/kernels.h"

/* A matrix of f32 or of bf16: element (i, j) at at[i row + j], or, transposed, at[j row + i]. */
struct pen_factor {
  const void *at;
  size_t row;
  int transposed;
};

/* Where a product goes as bf16: result = what the factors make + addend + bias, rounded once. The
 * latter two may be null; the addend may lie in the result's place. */
struct pen_rounding {
  const uint16_t *addend;
  const float *bias;
  uint16_t *result;
};

/* result[m,n] = left[m,k] right[k,n] + addend[m,n]; the addend may be null, or the result itself.
 * Rows of both are result_row apart. */
struct pen_product {
  struct pen_factor left, right;
  const float *addend;
  float *result;
  struct pen_rounding rounded; /* of factors of bf16: its result given, the product goes there
                                  instead, rows likewise apart */
  size_t result_row, m, n, k;
  float *workspace; /* 64-byte aligned; of the size that ops.def says */
};
typedef void pen_multiply(const struct pen_product *product);

/* matmul.c */

/* Readies products by `own`, or by the library where that is null. Returns who multiplies, static
 * storage; null without memory for the library's buffers. */
const char *pen_matmul_open(pen_multiply *own);
extern pen_multiply *pen_multiply_f32; /* valid after it */
pen_kernel pen_linear, pen_linear_dx, pen_linear_dw, pen_affine, pen_affine_dx, pen_affine_dw;

/* product_bf16.c: the same with factors of bf16 */

enum { PEN_NCCL_ROUNDS_DEPTH = 2 * PEN_PRODUCT_DEPTH };

/* Readies them by `pairs`, which multiplies factors of bf16, with a k of at most
 * PEN_NCCL_ROUNDS_DEPTH where it rounds; null: factors are widened, and multiplied by
 * pen_multiply_f32. */
void pen_products_bf16_open(pen_multiply *pairs);
pen_kernel pen_linear_bf16, pen_linear_dx_bf16, pen_linear_dw_bf16, pen_affine_bf16,
    pen_affine_dx_bf16, pen_affine_dw_bf16;

/* tables.c */
pen_kernel pen_rope_table, pen_embedding, pen_embedding_bf16, pen_split, pen_split_bf16,
    pen_split_dx, pen_split_dx_bf16;

/* open.c: to[i] = from[i] exactly, `rows` rows of `width`, `to_row` and `from_row` elements apart
 */
void pen_bf16_rows_to_f32(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width);
void pen_f32_rows_to_bf16(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                          size_t rows, size_t width);

#endif
