/* operands.c: what the tables of a plan say about the operands of its ops (see operands.h). */
#include "runtime/exec/operands.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/ops.h"
#include "runtime/base/check.h"

static const char *const signature_of[] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) signature,
#define PEN_DATA_OP(kind, dims, reals, signature, flops, meaning) signature,
#define PEN_RUNTIME_OP(kind, dims, reals, signature, flops, meaning) signature,
#include "kernels/ops.def"
};

/* Counts every name of the signature except the arrow; a name with "+" is accumulated. */
struct pen_operand_count pen_operands_of(uint16_t kind) {
  struct pen_operand_count count = {0};
  bool within = false;
  pen_assert(kind < PEN_OP_COUNT);
  for (const char *c = signature_of[kind]; *c != '\0'; c++) {
    bool blank = *c == ' ';
    bool arrow = c[0] == '-' && c[1] == '>';
    count.inputs = arrow ? count.all : count.inputs;
    count.all += !blank && !within && !arrow;
    count.accumulated |= *c == '+' ? 1u << (count.all - 1) : 0;
    within = !blank && !arrow;
    c += arrow; /* skips its second character */
  }
  pen_assert(count.all <= PEN_OPERANDS_MAX);
  return count;
}
