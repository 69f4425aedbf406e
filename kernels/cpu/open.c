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
#include "kernels/head_loss.h"

/* The kernels that are not compiled for each instruction set. */
static pen_kernel *const plain[PEN_OP_COUNT] = {
    [PEN_OP_LINEAR] = pen_linear,
    [PEN_OP_LINEAR_DX] = pen_linear_dx,
    [PEN_OP_LINEAR_DW] = pen_linear_dw,
    [PEN_OP_AFFINE] = pen_affine,
    [PEN_OP_AFFINE_DX] = pen_affine_dx,
    [PEN_OP_AFFINE_DW] = pen_affine_dw,
    [PEN_OP_SPLIT] = pen_split,
    [PEN_OP_SPLIT_DX] = pen_split_dx,
    [PEN_OP_ROPE_TABLE] = pen_rope_table,
    [PEN_OP_EMBEDDING] = pen_embedding,
    [PEN_OP_INDEX_SELECT] = pen_index_select,
    [PEN_OP_HEAD_LOSS] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_DW] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_B] = pen_head_loss,
    [PEN_OP_LINEAR_COLUMNS] = pen_linear_piece,
    [PEN_OP_LINEAR_COLUMNS_DX] = pen_linear_dx,
    [PEN_OP_LINEAR_ROWS] = pen_linear_piece,
    [PEN_OP_PARTIAL_ADD] = pen_partial_add,
    [PEN_OP_SUM_ADD] = pen_sum_add,
    [PEN_OP_AFFINE_COLUMNS] = pen_affine_piece,
    [PEN_OP_AFFINE_COLUMNS_DX] = pen_affine_dx,
    [PEN_OP_AFFINE_ROWS] = pen_affine_rows,
    [PEN_OP_LAYERNORM_RUNS] = pen_layernorm_runs,
    [PEN_OP_LAYERNORM_RUNS_DX] = pen_layernorm_runs_dx,
    [PEN_OP_BIAS_RUNS_DW] = pen_bias_runs_dw,
    [PEN_OP_POSITION_RUNS] = pen_position_runs,
    [PEN_OP_POSITION_RUNS_DW] = pen_position_runs_dw,
    [PEN_OP_SUM_PARTIALS] = pen_sum_partials,
    [PEN_OP_RMSNORM_RUNS] = pen_rmsnorm_runs,
    [PEN_OP_RMSNORM_RUNS_DX] = pen_rmsnorm_runs_dx,
    [PEN_OP_RMSNORM_HEADS] = pen_rmsnorm_heads,
    [PEN_OP_EMBEDDING_ROWS] = pen_embedding_rows,
    [PEN_OP_EMBEDDING_SELECT] = pen_embedding_select,
    [PEN_OP_MAXIMUM] = pen_maximum,
    [PEN_OP_OWN_RUN] = pen_own_run,
    [PEN_OP_SUM_PARTIALS_OWN] = pen_sum_partials_own,
    [PEN_OP_POSITION_OWN] = pen_position_own,
    [PEN_OP_EMBEDDING_ROWS_DW] = pen_embedding_rows_dw,
    [PEN_OP_LOGITS_JOIN] = pen_logits_join,
    [PEN_OP_HEAD_MAXIMUM] = pen_head_loss,
    [PEN_OP_HEAD_SUM] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS_DW] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS_B] = pen_head_loss,
    [PEN_OP_LINEAR_FUSED] = pen_linear_fused,
    [PEN_OP_LINEAR_FUSED_DX] = pen_linear_fused_dx,
    [PEN_OP_LINEAR_FUSED_DW] = pen_linear_fused_dw,
    [PEN_OP_SWIGLU_FUSED] = pen_swiglu_fused,
    [PEN_OP_SWIGLU_FUSED_DX] = pen_swiglu_fused_dx,
    [PEN_OP_GEGLU_FUSED] = pen_geglu_fused,
    [PEN_OP_GEGLU_FUSED_DX] = pen_geglu_fused_dx,
};

static pen_kernel *const plain_bf16[PEN_OP_COUNT] = {
    [PEN_OP_LINEAR] = pen_linear_bf16,
    [PEN_OP_LINEAR_DX] = pen_linear_dx_bf16,
    [PEN_OP_LINEAR_DW] = pen_linear_dw_bf16,
    [PEN_OP_AFFINE] = pen_affine_bf16,
    [PEN_OP_AFFINE_DX] = pen_affine_dx_bf16,
    [PEN_OP_AFFINE_DW] = pen_affine_dw_bf16,
    [PEN_OP_SPLIT] = pen_split_bf16,
    [PEN_OP_SPLIT_DX] = pen_split_dx_bf16,
    [PEN_OP_EMBEDDING] = pen_embedding_bf16,
    [PEN_OP_INDEX_SELECT] = pen_index_select_bf16,
    [PEN_OP_HEAD_LOSS] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_DW] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_B] = pen_head_loss,
    [PEN_OP_LINEAR_COLUMNS] = pen_linear_piece_bf16,
    [PEN_OP_LINEAR_COLUMNS_DX] = pen_linear_columns_dx_bf16,
    [PEN_OP_LINEAR_ROWS] = pen_linear_rows_bf16,
    [PEN_OP_AFFINE_COLUMNS] = pen_affine_piece_bf16,
    [PEN_OP_AFFINE_COLUMNS_DX] = pen_affine_columns_dx_bf16,
    [PEN_OP_AFFINE_ROWS] = pen_affine_rows_bf16,
    [PEN_OP_LAYERNORM_RUNS] = pen_layernorm_runs_bf16,
    [PEN_OP_LAYERNORM_RUNS_DX] = pen_layernorm_runs_dx_bf16,
    [PEN_OP_BIAS_RUNS_DW] = pen_bias_runs_dw_bf16,
    [PEN_OP_POSITION_RUNS] = pen_position_runs_bf16,
    [PEN_OP_POSITION_RUNS_DW] = pen_position_runs_dw_bf16,
    [PEN_OP_SUM_PARTIALS] = pen_sum_partials_bf16,
    [PEN_OP_RMSNORM_RUNS] = pen_rmsnorm_runs_bf16,
    [PEN_OP_RMSNORM_RUNS_DX] = pen_rmsnorm_runs_dx_bf16,
    [PEN_OP_RMSNORM_HEADS] = pen_rmsnorm_heads_bf16,
    [PEN_OP_EMBEDDING_ROWS] = pen_embedding_rows_bf16,
    [PEN_OP_EMBEDDING_SELECT] = pen_embedding_select_bf16,
    [PEN_OP_SUM_PARTIALS_OWN] = pen_sum_partials_own_bf16,
    [PEN_OP_POSITION_OWN] = pen_position_own_bf16,
    [PEN_OP_EMBEDDING_ROWS_DW] = pen_embedding_rows_dw_bf16,
    [PEN_OP_LOGITS_JOIN] = pen_logits_join_bf16,
    [PEN_OP_HEAD_MAXIMUM] = pen_head_loss,
    [PEN_OP_HEAD_SUM] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS_DW] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_COLUMNS_B] = pen_head_loss,
    [PEN_OP_LINEAR_FUSED] = pen_linear_fused_bf16,
    [PEN_OP_LINEAR_FUSED_DX] = pen_linear_fused_dx_bf16,
    [PEN_OP_LINEAR_FUSED_DW] = pen_linear_fused_dw_bf16,
    [PEN_OP_SWIGLU_FUSED] = pen_swiglu_fused_bf16,
    [PEN_OP_SWIGLU_FUSED_DX] = pen_swiglu_fused_dx_bf16,
    [PEN_OP_GEGLU_FUSED] = pen_geglu_fused_bf16,
    [PEN_OP_GEGLU_FUSED_DX] = pen_geglu_fused_dx_bf16,
};

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
  assert(kind >= 0 && kind < PEN_OP_COUNT && (dtype == PEN_F32 || dtype == PEN_BF16));
  if (dtype == PEN_BF16 && onednn_bf16 && is_product(kind)) return pen_onednn_product;
  const struct pen_vector_kernels *set =
      dtype == PEN_BF16 ? pen_instruction_set.bf16 : pen_instruction_set.f32;
  pen_kernel *kernel = set->op[kind]       ? set->op[kind]
                       : dtype == PEN_BF16 ? plain_bf16[kind]
                                           : plain[kind];
  return pen_row_op(kind, dtype, kernel);
}

void *pen_cpu_prepare_product(enum pen_op_kind kind, enum pen_dtype dtype,
                              const int64_t dim[PEN_DIMS_MAX]) {
  if (!is_product(kind)) return NULL;
  for (int i = 0; i < 3; i++) assert(dim[i] > 0 && dim[i] <= INT_MAX); /* BLAS counts in int */
  return dtype == PEN_BF16 && onednn_bf16 ? pen_onednn_prepare(kind, dtype, dim, plain_bf16[kind])
                                          : NULL;
}
