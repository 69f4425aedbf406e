/* kernel_cases.h: the shapes on which kernels.c compares the CUDA kernels with the CPU's, and how
 * near they must be. */
#ifndef PEN_TESTS_GPU_KERNEL_CASES_H
#define PEN_TESTS_GPU_KERNEL_CASES_H

#include "kernels/kernels.h"

struct gpu_case {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  int integers; /* integer operands get values below this, and -100 here and there for targets */
  double tolerance, floor; /* 0: the same bits */
  int large;               /* only on a real GPU */
};

extern const struct gpu_case gpu_cases[];
extern const int gpu_case_count;

#endif
