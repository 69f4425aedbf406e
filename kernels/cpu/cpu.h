/* cpu.h: what the files of the CPU backend share with each other. */
#ifndef PEN_CPU_H
#define PEN_CPU_H

#include "kernels/kernels.h"

/* matmul.c */
const char *pen_matmul_open(void); /* readies the library, returns its name and what it chose, static
                                      storage; null without memory for its buffers */
pen_kernel pen_linear, pen_linear_dx, pen_linear_dw, pen_affine, pen_affine_dx, pen_affine_dw;

/* product_bf16.c: the same with factors of bf16 */
pen_kernel pen_linear_bf16, pen_linear_dx_bf16, pen_linear_dw_bf16, pen_affine_bf16, pen_affine_dx_bf16, pen_affine_dw_bf16;

/* tables.c */
pen_kernel pen_rope_table, pen_embedding, pen_embedding_bf16, pen_split, pen_split_bf16, pen_split_dx, pen_split_dx_bf16;

/* open.c: to[i] = from[i] exactly, `rows` rows of `width`, `to_row` and `from_row` elements apart */
void pen_widen_rows(float *to, size_t to_row, const uint16_t *from, size_t from_row, size_t rows, size_t width);
void pen_narrow_rows(uint16_t *to, size_t to_row, const float *from, size_t from_row, size_t rows, size_t width);

#endif
