/* open.c: the CPU backend behind kernels.h: chooses code by what this CPU has, once, and hands it out. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/isa.h"

static const struct pen_vector_kernels *chosen = &pen_baseline_kernels;

/* The kernels that are not compiled per instruction set. */
static pen_kernel *const plain[PEN_OP_COUNT] = {
  [PEN_OP_LINEAR] = pen_linear,         [PEN_OP_LINEAR_DX] = pen_linear_dx, [PEN_OP_LINEAR_DW] = pen_linear_dw,
  [PEN_OP_AFFINE] = pen_affine,         [PEN_OP_AFFINE_DX] = pen_affine_dx, [PEN_OP_AFFINE_DW] = pen_affine_dw,
  [PEN_OP_SPLIT] = pen_split,           [PEN_OP_SPLIT_DX] = pen_split_dx,
  [PEN_OP_ROPE_TABLE] = pen_rope_table, [PEN_OP_EMBEDDING] = pen_embedding,
};

/* The instruction sets that this CPU and this operating system run, the best first. */
static size_t supported(const struct pen_vector_kernels *set[3]) {
  size_t count = 0;
#if defined __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    set[count++] = &pen_avx512_kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    set[count++] = &pen_avx2_kernels;
#endif
  set[count++] = &pen_baseline_kernels;
  return count;
}

/* The best set, or the one that PEN_ISA names (baseline, avx2, avx512); a name that is unknown or not supported is ignored. */
static const struct pen_vector_kernels *choose_set(void) {
  const struct pen_vector_kernels *set[3];
  const size_t count = supported(set);
  const char *wanted = getenv("PEN_ISA");
  for (size_t i = 0; wanted && i < count; i++)
    if (!strcmp(wanted, set[i]->name))
      return set[i];
  return set[0];
}

/* Every kernel runs in the caller's thread, however many it might use: see matmul.c on what a second one does to the bits. */
const char *pen_kernels_open(int threads) {
  (void)threads;
  static char line[160];
  chosen = choose_set();
  const char *matmul = pen_matmul_open();
  if (!matmul)
    return NULL;
  snprintf(line, sizeof line, "%s; matrix products: %s", chosen->name, matmul);
  return line;
}

pen_kernel *pen_kernel_of(enum pen_op_kind kind) {
  assert(kind >= 0 && kind < PEN_OP_COUNT);
  return chosen->op[kind] ? chosen->op[kind] : plain[kind];
}

/* Nothing is made per op: OpenBLAS has its buffer since pen_kernels_open(), and the rest works in call->workspace. */
void *pen_kernels_prepare(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]) {
  (void)real;
  if (kind == PEN_OP_LINEAR || kind == PEN_OP_LINEAR_DX || kind == PEN_OP_LINEAR_DW)
    for (int i = 0; i < 3; i++)
      assert(dim[i] > 0 && dim[i] <= INT_MAX); /* BLAS counts in int */
  return NULL;
}

double pen_sum_squares(const float *x, size_t count) { return chosen->sum_squares(x, count); }

double pen_greatest_magnitude(const float *x, size_t count) { return chosen->greatest_magnitude(x, count); }

void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq, size_t count,
                    const struct pen_adamw *settings) {
  chosen->adamw_step(parameter, gradient, exp_avg, exp_avg_sq, count, settings);
}

void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation) {
  chosen->normal(y, count, first, key, deviation);
}
