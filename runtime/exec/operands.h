/* operands.h: what the tables of a plan say about the operands of its ops. */
#ifndef PEN_OPERANDS_H
#define PEN_OPERANDS_H

#include <stdint.h>

#include "runtime/plan/plan.h"

/* How many operands an op of that kind has, and how many of these are inputs: they come first
 * (kernels/ops.def). `accumulated`: bit k is set if the op adds to operand k. */
struct pen_operand_count {
  uint32_t inputs, all, accumulated;
};
struct pen_operand_count pen_operands_of(uint16_t kind);

#endif
