/* isa.h: how the sources of vector/ are compiled several times, and what each compilation offers.
 *
 * A .c file is compiled for each instruction set, with -DPEN_ISA=baseline, avx2 or avx512 and its
 * -m flags, and again with -DPEN_STORED_BF16 for ops of dtype bf16 (vector.h), except F32_SOURCES
 * of local.mk. avx512bf16, for CPUs that multiply bf16 (-DPEN_PAIRS), differs from avx512 in the
 * bf16 kernels and has product_pairs.c. PEN_NAME(x) adds the set's name to x, so that all sets are
 * in one binary; dispatch.c lists the functions of a set in a struct, and instruction_set.c chooses
 * a struct at start.
 */
#ifndef PEN_ISA_H
#define PEN_ISA_H

#include "kernels/cpu/cpu.h"

struct pen_vector_kernels {
  pen_kernel *
      op[PEN_OP_COUNT]; /* null: the op is not in vector/ (open.c), or does not support the dtype */
  /* The rest except `multiply` is null in the sets for bf16. Rows as in cpu.h. */
  void (*widen_rows)(float *to, size_t to_row, const uint16_t *from, size_t from_row, size_t rows,
                     size_t width);
  void (*narrow_rows)(uint16_t *to, size_t to_row, const float *from, size_t from_row, size_t rows,
                      size_t width);
  double (*sum_squares)(const float *x, size_t count);
  double (*max_abs)(const float *x, size_t count);
  void (*adamw_step)(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                     size_t count, const struct pen_adamw *settings,
                     const double correction[2]); /* 1 - beta1^updates, 1 - beta2^updates */
  void (*sgd_step)(float *parameter, float *gradient, float *buffer, size_t count,
                   const struct pen_sgd *settings);
  void (*momentum_step)(float *gradient, float *buffer, size_t count,
                        const struct pen_muon *settings);
  void (*combine)(float *y, const float *x, size_t count, float a, float b);
  void (*sum_arrays)(float *y, const float *const *x, size_t arrays, size_t first, size_t past);
  void (*normal)(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation);
  pen_multiply *multiply; /* for bf16: by pairs; null if the instruction set has none */
};

extern const struct pen_vector_kernels pen_baseline_kernels, pen_baseline_bf16_kernels;
#if defined __x86_64__
extern const struct pen_vector_kernels pen_avx2_kernels, pen_avx2_bf16_kernels;
extern const struct pen_vector_kernels pen_avx512_kernels, pen_avx512_bf16_kernels,
    pen_avx512bf16_bf16_kernels;
#endif

#ifdef PEN_ISA
#ifdef PEN_STORED_BF16
#define PEN_NAME_OF(isa, name) pen_##isa##_bf16_##name
#else
#define PEN_NAME_OF(isa, name) pen_##isa##_##name
#endif
#define PEN_NAME_IN(isa, name) PEN_NAME_OF(isa, name)
#define PEN_NAME(name) PEN_NAME_IN(PEN_ISA, name)

/* The functions of this instruction set: one for each such row of ops.def, and for f32 those that
 * are no ops. */
#define PEN_CPU_VECTOR(kind, name, threads, workspace) pen_kernel PEN_NAME(name);
#define PEN_CPU_VECTOR_F32 PEN_CPU_VECTOR
#include "kernels/cpu/ops.def"
void PEN_NAME(widen_rows)(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width);
void PEN_NAME(narrow_rows)(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                           size_t rows, size_t width);
double PEN_NAME(sum_squares)(const float *x, size_t count);
double PEN_NAME(max_abs)(const float *x, size_t count);
void PEN_NAME(adamw_step)(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                          size_t count, const struct pen_adamw *settings,
                          const double correction[2]);
void PEN_NAME(sgd_step)(float *parameter, float *gradient, float *buffer, size_t count,
                        const struct pen_sgd *settings);
void PEN_NAME(momentum_step)(float *gradient, float *buffer, size_t count,
                             const struct pen_muon *settings);
void PEN_NAME(combine)(float *y, const float *x, size_t count, float a, float b);
void PEN_NAME(sum_arrays)(float *y, const float *const *x, size_t arrays, size_t first,
                          size_t past);
void PEN_NAME(normal)(float *y, size_t count, uint64_t first, const uint32_t key[2],
                      double deviation);
pen_multiply PEN_NAME(multiply);
#endif

#endif
