/* instruction_set.c: chooses the instruction set of the CPU's kernels, and calls its functions that
 * are no ops (kernels.h). */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector/isa.h"

enum { SETS = 4 };

struct pen_instruction_set pen_instruction_set = {"baseline", &pen_baseline_kernels,
                                                  &pen_baseline_bf16_kernels};

/* Lists the instruction sets that the CPU and the operating system support, best first. Returns
 * their number. */
static size_t list_supported(struct pen_instruction_set set[SETS]) {
  size_t count = 0;
#if defined __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx512bf16"))
      set[count++] = (struct pen_instruction_set){"avx512bf16", &pen_avx512_kernels,
                                                  &pen_avx512bf16_bf16_kernels};
    set[count++] =
        (struct pen_instruction_set){"avx512", &pen_avx512_kernels, &pen_avx512_bf16_kernels};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    set[count++] = (struct pen_instruction_set){"avx2", &pen_avx2_kernels, &pen_avx2_bf16_kernels};
#endif
  set[count++] =
      (struct pen_instruction_set){"baseline", &pen_baseline_kernels, &pen_baseline_bf16_kernels};
  return count;
}

void pen_instruction_set_choose(void) {
  struct pen_instruction_set set[SETS];
  const size_t count = list_supported(set);
  const char *wanted = getenv("PEN_ISA");
  pen_instruction_set = set[0];
  for (size_t i = 0; wanted && i < count; i++)
    if (!strcmp(wanted, set[i].name)) pen_instruction_set = set[i];
}

void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count) {
  pen_instruction_set.f32->narrow_rows(to, 0, from, 0, 1, count);
}

void pen_bf16_to_f32(float *to, const uint16_t *from, size_t count) {
  pen_instruction_set.f32->widen_rows(to, 0, from, 0, 1, count);
}

void pen_bf16_rows_to_f32(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width) {
  pen_instruction_set.f32->widen_rows(to, to_row, from, from_row, rows, width);
}

void pen_f32_rows_to_bf16(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                          size_t rows, size_t width) {
  pen_instruction_set.f32->narrow_rows(to, to_row, from, from_row, rows, width);
}

double pen_sum_squares(const float *x, size_t count) {
  return pen_instruction_set.f32->sum_squares(x, count);
}

double pen_max_abs(const float *x, size_t count) {
  return pen_instruction_set.f32->max_abs(x, count);
}

void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings) {
  pen_instruction_set.f32->adamw_step(parameter, gradient, exp_avg, exp_avg_sq, count, settings);
}

void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count) {
  pen_instruction_set.f32->sum_arrays(y, x, arrays, count);
}

void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation) {
  pen_instruction_set.f32->normal(y, count, first, key, deviation);
}
