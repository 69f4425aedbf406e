/* cpu.h: what the files of the CPU backend share with each other. */
#ifndef PEN_CPU_H
#define PEN_CPU_H

#include "kernels/kernels.h"

/* matmul.c */
const char *pen_matmul_open(void); /* readies the library, returns its name and what it chose, static
                                      storage; null without memory for its buffers */
pen_kernel pen_linear, pen_linear_dx, pen_linear_dw, pen_affine, pen_affine_dx, pen_affine_dw;

/* tables.c */
pen_kernel pen_rope_table, pen_embedding, pen_split, pen_split_dx;

#endif
