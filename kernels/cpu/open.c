/* open.c: the CPU backend behind kernels.h: chooses code by what this CPU has, once, and hands it
 * out. */
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
#include "kernels/cpu/vector/isa.h"
#include "kernels/head_loss.h"

/* One instruction set: its kernels for f32, and those for bf16. */
struct set {
  const char *name;
  const struct pen_vector_kernels *f32, *bf16;
};

enum { SETS = 4 };
static struct set chosen = {"baseline", &pen_baseline_kernels, &pen_baseline_bf16_kernels};

/* The kernels that are not compiled per instruction set. */
static pen_kernel *const plain[PEN_OP_COUNT] = {
    [PEN_OP_LINEAR] = pen_linear,         [PEN_OP_LINEAR_DX] = pen_linear_dx,
    [PEN_OP_LINEAR_DW] = pen_linear_dw,   [PEN_OP_AFFINE] = pen_affine,
    [PEN_OP_AFFINE_DX] = pen_affine_dx,   [PEN_OP_AFFINE_DW] = pen_affine_dw,
    [PEN_OP_SPLIT] = pen_split,           [PEN_OP_SPLIT_DX] = pen_split_dx,
    [PEN_OP_ROPE_TABLE] = pen_rope_table, [PEN_OP_EMBEDDING] = pen_embedding,
    [PEN_OP_HEAD_LOSS] = pen_head_loss,   [PEN_OP_HEAD_LOSS_DW] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_B] = pen_head_loss,
};

static pen_kernel *const plain_bf16[PEN_OP_COUNT] = {
    [PEN_OP_LINEAR] = pen_linear_bf16,       [PEN_OP_LINEAR_DX] = pen_linear_dx_bf16,
    [PEN_OP_LINEAR_DW] = pen_linear_dw_bf16, [PEN_OP_AFFINE] = pen_affine_bf16,
    [PEN_OP_AFFINE_DX] = pen_affine_dx_bf16, [PEN_OP_AFFINE_DW] = pen_affine_dw_bf16,
    [PEN_OP_SPLIT] = pen_split_bf16,         [PEN_OP_SPLIT_DX] = pen_split_dx_bf16,
    [PEN_OP_EMBEDDING] = pen_embedding_bf16, [PEN_OP_HEAD_LOSS] = pen_head_loss,
    [PEN_OP_HEAD_LOSS_DW] = pen_head_loss,   [PEN_OP_HEAD_LOSS_B] = pen_head_loss,
};

static int library_bf16; /* oneDNN multiplies, instead of our own */

static int is_product(enum pen_op_kind kind) {
  return kind == PEN_OP_LINEAR || kind == PEN_OP_LINEAR_DX || kind == PEN_OP_LINEAR_DW ||
         kind == PEN_OP_AFFINE || kind == PEN_OP_AFFINE_DX || kind == PEN_OP_AFFINE_DW;
}

/* The instruction sets that this CPU and this operating system run, the best first. */
static size_t supported(struct set set[SETS]) {
  size_t count = 0;
#if defined __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx512bf16"))
      set[count++] = (struct set){"avx512bf16", &pen_avx512_kernels, &pen_avx512bf16_bf16_kernels};
    set[count++] = (struct set){"avx512", &pen_avx512_kernels, &pen_avx512_bf16_kernels};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    set[count++] = (struct set){"avx2", &pen_avx2_kernels, &pen_avx2_bf16_kernels};
#endif
  set[count++] = (struct set){"baseline", &pen_baseline_kernels, &pen_baseline_bf16_kernels};
  return count;
}

/* The best set, or the one that PEN_ISA names (baseline, avx2, avx512, avx512bf16); a name that is
 * unknown or not supported is ignored. */
static struct set choose_set(void) {
  struct set set[SETS];
  const size_t count = supported(set);
  const char *wanted = getenv("PEN_ISA");
  for (size_t i = 0; wanted && i < count; i++)
    if (!strcmp(wanted, set[i].name)) return set[i];
  return set[0];
}

/* PEN_PRODUCTS (own, library): whose products are asked for, by tests and benches. It is read again
 * at each open. */
static int asks_for(const char *whose) {
  const char *wanted = getenv("PEN_PRODUCTS");
  return wanted && !strcmp(wanted, whose);
}

/* Whether our own products of f32 are the ones to take: where they were measured to be faster
 * (matmul.c). */
static int multiplies(void) {
  return asks_for("own") || (!asks_for("library") && strcmp(chosen.name, "baseline") != 0);
}

/* Whether there is AMX for bf16, which only oneDNN knows how to use: the CPU has it, and the
 * operating system keeps its registers. */
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

/* Opens oneDNN, where it is to multiply bf16. Returns its name; null: it does not. */
static const char *open_library(void) {
  const int wanted = asks_for("library") || (has_amx() && !asks_for("own"));
  return wanted && chosen.bf16->multiply ? pen_onednn_open() : NULL;
}

/* Every kernel runs in the caller's thread, however many it might use: see matmul.c on what a
 * second one does to the bits. */
const char *pen_kernels_open(int threads) {
  (void)threads;
  static char line[160];
  chosen = choose_set();
  const char *onednn = open_library();
  library_bf16 = onednn != NULL;
  pen_products_bf16_open(asks_for("library") ? NULL : chosen.bf16->multiply);
  const char *matmul = pen_matmul_open(multiplies() ? chosen.f32->multiply : NULL);
  if (!matmul) return NULL;
  snprintf(line, sizeof line, "%s; matrix products: %s%s%s", chosen.name, matmul,
           onednn ? ", of bf16: " : "", onednn ? onednn : "");
  return line;
}

pen_kernel *pen_kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  assert(kind >= 0 && kind < PEN_OP_COUNT && (dtype == PEN_F32 || dtype == PEN_BF16));
  if (dtype == PEN_BF16 && library_bf16 && is_product(kind)) return pen_onednn_product;
  const struct pen_vector_kernels *set = dtype == PEN_BF16 ? chosen.bf16 : chosen.f32;
  return set->op[kind] ? set->op[kind] : dtype == PEN_BF16 ? plain_bf16[kind] : plain[kind];
}

/* Nothing is made per op but for oneDNN, and for ops made of others: OpenBLAS, where it is used,
 * has its buffer since pen_kernels_open(), and the rest works in call->workspace. */
void *pen_kernels_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                          const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]) {
  (void)real;
  if (pen_is_head_loss(kind)) return pen_head_loss_prepare(&pen_cpu, kind, dtype, dim);
  if (!is_product(kind)) return NULL;
  for (int i = 0; i < 3; i++) assert(dim[i] > 0 && dim[i] <= INT_MAX); /* BLAS counts in int */
  return dtype == PEN_BF16 && library_bf16 ? pen_onednn_prepare(kind, dtype, dim, plain_bf16[kind])
                                           : NULL;
}

void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count) {
  chosen.f32->narrow_rows(to, 0, from, 0, 1, count);
}

void pen_bf16_to_f32(float *to, const uint16_t *from, size_t count) {
  chosen.f32->widen_rows(to, 0, from, 0, 1, count);
}

void pen_bf16_rows_to_f32(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width) {
  chosen.f32->widen_rows(to, to_row, from, from_row, rows, width);
}

void pen_f32_rows_to_bf16(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                          size_t rows, size_t width) {
  chosen.f32->narrow_rows(to, to_row, from, from_row, rows, width);
}

double pen_sum_squares(const float *x, size_t count) { return chosen.f32->sum_squares(x, count); }

double pen_max_abs(const float *x, size_t count) { return chosen.f32->max_abs(x, count); }

void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings) {
  chosen.f32->adamw_step(parameter, gradient, exp_avg, exp_avg_sq, count, settings);
}

void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count) {
  chosen.f32->sum_arrays(y, x, arrays, count);
}

void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation) {
  chosen.f32->normal(y, count, first, key, deviation);
}
