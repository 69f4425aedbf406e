/* instruction_set.c: chooses the instruction set of the CPU's kernels. */
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

const char *pen_instruction_set_name(size_t index) {
  struct pen_instruction_set set[SETS];
  return index < list_supported(set) ? set[index].name : NULL;
}

void pen_instruction_set_choose(void) {
  struct pen_instruction_set set[SETS];
  const size_t count = list_supported(set);
  const char *wanted = getenv("PEN_ISA");
  pen_instruction_set = set[0];
  for (size_t i = 0; wanted && i < count; i++)
    if (!strcmp(wanted, set[i].name)) pen_instruction_set = set[i];
}
