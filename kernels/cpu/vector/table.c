/* table.c: the functions of one instruction set, gathered. */
#include "kernels/cpu/vector/isa.h"

#define PEN_ENTRY(kind, name) [PEN_OP_##kind] = PEN_NAME(name),
const struct pen_vector_kernels PEN_NAME(kernels) = {
  .name = PEN_ISA_TEXT,
  .op = { PEN_VECTOR_OPS(PEN_ENTRY) },
  .sum_squares = PEN_NAME(sum_squares),
  .greatest_magnitude = PEN_NAME(greatest_magnitude),
  .adamw_step = PEN_NAME(adamw_step),
  .normal = PEN_NAME(normal),
};
