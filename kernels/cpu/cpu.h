/* cpu.h: the CPU backend: the operations of ops.def, and struct pen_device (device.h), on host
 * memory.
 *
 * In: calls with shapes and addresses. Out: results, when the call returns; pen_cpu in device.h,
 * and the functions of kernels.h. Nothing outside of this folder includes this header, except
 * tests.
 *
 * vector/ has the kernels that are compiled once for each instruction set; instruction_set.c
 * chooses a set. Matrix products: matmul.c in f32, product_bf16.c in bf16, onednn.c by a library.
 * ops.def has the function of each op, arrays.c has the functions that are no ops, and device.c
 * struct pen_device. Kernels divide their work over the threads of the rank (threads.h), and
 * allocate nothing after they are prepared, except in oneDNN. */
#ifndef PEN_CPU_H
#define PEN_CPU_H

#include "kernels/kernels.h"

/* instruction_set.c */

/* The kernels of an instruction set, for each dtype (vector/isa.h). */
struct pen_vector_kernels;
extern struct pen_instruction_set {
  const char *name;
  const struct pen_vector_kernels *f32, *bf16;
} pen_instruction_set; /* the one in use; "baseline" until another is chosen */

/* Chooses the best set that this CPU supports, or the one that PEN_ISA names (baseline, avx2,
 * avx512, avx512bf16). A name that is not supported here is ignored: a program refuses it before
 * (runtime/base/environment.h). */
void pen_instruction_set_choose(void);

/* to[i] = from[i], exact or rounded to nearest even, for `rows` rows of `width` elements whose
 * starts are `to_row` and `from_row` elements apart. */
void pen_bf16_rows_to_f32(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width);
void pen_f32_rows_to_bf16(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                          size_t rows, size_t width);

/* Matrix products. */

/* A matrix of f32 or bf16: element (i, j) is at[i * row + j] or, transposed, at[j * row + i]. */
struct pen_matrix {
  const void *at;
  size_t row;
  int transposed;
};

/* A bf16 result: result = product + addend + bias, rounded once. `addend` and `bias` may be null;
 * `addend` may be the result. */
struct pen_rounding {
  const uint16_t *addend;
  const float *bias;
  uint16_t *result;
};

/* result[m,n] = left[m,k] right[k,n] + addend[m,n]. The addend may be null or the result. Rows of
 * both are result_row elements apart. */
struct pen_product {
  struct pen_matrix left, right;
  const float *addend;
  float *result;
  struct pen_rounding rounded; /* bf16 factors: if rounded.result is set, the product goes there
                                  instead, with rows result_row apart */
  size_t result_row, m, n, k;
  float *workspace; /* 64-byte aligned; ops.def gives its size */
};
typedef void pen_multiply(const struct pen_product *product);

/* The dims of LINEAR, AFFINE, their _DX and their _DW. */
struct pen_product_dims {
  size_t rows, in, out;
};
static inline struct pen_product_dims pen_product_dims(const struct pen_call *call) {
  return (struct pen_product_dims){(size_t)call->dim[0], (size_t)call->dim[1],
                                   (size_t)call->dim[2]};
}

/* LINEAR, AFFINE, their _DX and their _DW as result[m,n] = left[m,k] right[k,n]: m, n, k and rows
 * are indices of dims, the others of operands. A factor has rows of `row` elements. */
enum { PEN_ROWS, PEN_IN, PEN_OUT, PEN_SPLITS, PEN_PRODUCT_DIMS, PEN_NO_BIAS = -1 };
enum pen_product_kind {
  PEN_LINEAR,
  PEN_LINEAR_DX,
  PEN_LINEAR_DW,
  PEN_AFFINE,
  PEN_AFFINE_DX,
  PEN_AFFINE_DW,
  PEN_PRODUCTS
};
struct pen_product_geometry {
  enum pen_op_kind kind;
  int m, n, k;
  int left, left_row, left_transposed;
  int right, right_row, right_transposed;
  int bias, addend, result;
  int adds; /* a weight gradient: f32, accumulated */
};
extern const struct pen_product_geometry pen_product_geometries[PEN_PRODUCTS]; /* matmul.c */

static inline struct pen_matrix pen_product_left(const struct pen_call *call,
                                                 const struct pen_product_geometry *g) {
  return (struct pen_matrix){call->operand[g->left], (size_t)call->dim[g->left_row],
                             g->left_transposed};
}
static inline struct pen_matrix pen_product_right(const struct pen_call *call,
                                                  const struct pen_product_geometry *g) {
  return (struct pen_matrix){call->operand[g->right], (size_t)call->dim[g->right_row],
                             g->right_transposed};
}

/* matmul.c: f32 */

/* Selects the function for products: `own`, or that of the BLAS library, if it is asked for and
 * installed. Returns its name, static storage; null: no memory for the library's buffers. */
const char *pen_matmul_open(pen_multiply *own, int by_library);
extern pen_multiply *pen_multiply_f32; /* valid after pen_matmul_open() */

/* product_bf16.c: bf16 factors */

enum { PEN_PAIR_DEPTH = 2 * PEN_PRODUCT_DEPTH };

/* Selects the function for products of bf16: `pairs`, whose k is at most PEN_PAIR_DEPTH if it
 * rounds; null: factors are converted to f32 and multiplied by pen_multiply_f32. */
void pen_products_bf16_open(pen_multiply *pairs);

/* open.c: prepares an op if it is a matrix product; returns call->prepared, may be null. */
void *pen_cpu_prepare_product(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]);

/* splits.c: sums of runs, by a kernel whose dim `runs` is 0 then. Elements of the op's dtype have
 * so many bytes. */

/* The gradient of a norm with one sum, dgain, or two, dbias too. Workspace: the sums of one call,
 * then those of each run, the first sum of all runs before the second. */
void pen_norm_runs_dx(const struct pen_call *call, pen_kernel *norm_dx, size_t sum_count,
                      size_t element_bytes);
void pen_bias_runs_dw(const struct pen_call *call, pen_kernel *bias_dw, size_t element_bytes);
/* Workspace: the runs, then a row in f32. */
void pen_position_runs_dw(const struct pen_call *call, size_t element_bytes);

/* The kernels of ops.def that are not compiled for each instruction set. */
#define PEN_CPU(kind, f32, bf16, threads, workspace) pen_kernel pen_##f32, pen_##bf16;
#define PEN_CPU_PARTIAL(kind, f32, bf16, partial, threads, workspace) \
  pen_kernel pen_##f32, pen_##bf16, pen_##partial;
#define PEN_CPU_F32(kind, f32, threads, workspace) pen_kernel pen_##f32;
#include "kernels/cpu/ops.def"

#endif
