/* open.c: opens the CPU backend, and lists the function of each op. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined __x86_64__
#include <cpuid.h>
#endif

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/vector/isa.h"

/* The kernels that are not compiled for each instruction set, by dtype. */
static pen_kernel *const plain[PEN_OP_COUNT][PEN_DTYPES] = {
#define PEN_CPU(kind, f32, bf16, threads, workspace) [PEN_OP_##kind] = {pen_##f32, pen_##bf16},
#define PEN_CPU_PARTIAL(kind, f32, bf16, partial, threads, workspace) \
  [PEN_OP_##kind] = {pen_##f32, pen_##bf16, [PEN_BF16_PARTIAL] = pen_##partial},
#define PEN_CPU_F32(kind, f32, threads, workspace) [PEN_OP_##kind] = {pen_##f32},
#include "kernels/cpu/ops.def"
};

/* Each op has one row in ops.def. */
enum {
#define PEN_CPU_ROW(kind, threads, workspace) ROW_OF_##kind,
#include "kernels/cpu/ops.def"
  ROWS,
  KERNELS = 0
#define PEN_OP(kind, dims, reals, signature, flops, meaning) +(ROW_OF_##kind < ROWS)
#include "kernels/ops.def"
};
_Static_assert(ROWS == KERNELS, "a row of cpu/ops.def is of no PEN_OP");

static int onednn_bf16; /* oneDNN multiplies bf16 */

static int is_product(enum pen_op_kind kind) {
  return kind == PEN_OP_LINEAR || kind == PEN_OP_LINEAR_DX || kind == PEN_OP_LINEAR_DW ||
         kind == PEN_OP_AFFINE || kind == PEN_OP_AFFINE_DX || kind == PEN_OP_AFFINE_DW;
}

/* PEN_PRODUCTS (own, library) selects the implementation of products, for tests and benchmarks. It
 * is read at each open. */
static int products_are(const char *implementation) {
  const char *wanted = getenv("PEN_PRODUCTS");
  return wanted && !strcmp(wanted, implementation);
}

/* Does this project's product of f32 run, or BLAS? It is faster with AVX2 and AVX-512 (matmul.c).
 */
static int uses_own_f32(void) {
  return products_are("own") ||
         (!products_are("library") && strcmp(pen_instruction_set.name, "baseline") != 0);
}

/* Does the CPU have AMX for bf16, and does the operating system save its registers? Only oneDNN
 * uses it. */
static int has_amx(void) {
#if defined __x86_64__
  enum { FEATURES = 7, AMX_BF16 = 1 << 22, STATES = 13, TILES = 3 << 17 };
  unsigned a, b, c, d, state = 0;
  if (__get_cpuid_count(STATES, 0, &state, &b, &c, &d) && (state & TILES) != TILES) return 0;
  return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (d & AMX_BF16);
#else
  return 0;
#endif
}

/* Opens oneDNN if it shall multiply bf16. Returns its name; null: it does not. */
static const char *open_onednn(void) {
  const int wanted = products_are("library") || (has_amx() && !products_are("own"));
  return wanted && pen_instruction_set.bf16->multiply ? pen_onednn_open() : NULL;
}

const char *pen_kernels_open(void) {
  static char line[160];
  pen_instruction_set_choose();
  const char *onednn = open_onednn();
  onednn_bf16 = onednn != NULL;
  pen_products_bf16_open(products_are("library") ? NULL : pen_instruction_set.bf16->multiply);
  const char *matmul = pen_matmul_open(pen_instruction_set.f32->multiply, !uses_own_f32());
  if (!matmul) return NULL;
  snprintf(line, sizeof line, "%s; matrix products: %s%s%s", pen_instruction_set.name, matmul,
           onednn ? ", of bf16: " : "", onednn ? onednn : "");
  return line;
}

pen_kernel *pen_kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  assert(kind >= 0 && kind < PEN_OP_COUNT && dtype < PEN_DTYPES && dtype != PEN_I32 &&
         dtype != PEN_F64);
  if (dtype == PEN_BF16_PARTIAL) return plain[kind][dtype];
  if (dtype == PEN_BF16 && onednn_bf16 && is_product(kind)) return pen_onednn_product;
  const struct pen_vector_kernels *set =
      dtype == PEN_BF16 ? pen_instruction_set.bf16 : pen_instruction_set.f32;
  return pen_row_op(kind, dtype, set->op[kind] ? set->op[kind] : plain[kind][dtype]);
}

/* A product of one row, as of a token, takes as long as reading the weight (vector/few_rows.h); by
 * oneDNN 2.6 1.7 times as long. */
static int has_faster_own(enum pen_op_kind kind, const int64_t *dim) {
  return kind == PEN_OP_LINEAR && dim[PEN_ROWS] == 1 && !products_are("library");
}

void *pen_cpu_prepare_product(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]) {
  if (!is_product(kind)) return NULL;
  for (int i = 0; i < 3; i++) assert(dim[i] > 0 && dim[i] <= INT_MAX); /* BLAS counts in int */
  return dtype == PEN_BF16 && onednn_bf16
             ? pen_onednn_prepare(kind, dtype, dim, plain[kind][PEN_BF16],
                                  has_faster_own(kind, dim))
             : NULL;
}
