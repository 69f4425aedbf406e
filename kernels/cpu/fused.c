/* fused.c: products of one value as one: on the CPU, which has no such plans, the reference of the
 * CUDA kernels. Weights lie one after the other, so such a product is one with all rows. */
#include "kernels/cpu/cpu.h"

/* Calls the product of that kind for operands of the call: x, or dy; the first weight or its
 * gradient; the addend; the result. */
static void multiply(const struct pen_call *call, pen_kernel *product, const int operand[4]) {
  struct pen_call whole = {.dim = {call->dim[0], call->dim[1], call->dim[2]},
                           .workspace = call->workspace};
  for (int k = 0; k < 4; k++) whole.operand[k] = operand[k] < 0 ? NULL : call->operand[operand[k]];
  product(&whole);
}

#define FUSED(suffix)                                                  \
  void pen_linear_fused##suffix(const struct pen_call *call) {         \
    multiply(call, pen_linear##suffix, (const int[]){0, 1, -1, 4});    \
  }                                                                    \
  void pen_linear_fused_dx##suffix(const struct pen_call *call) {      \
    multiply(call, pen_linear_dx##suffix, (const int[]){0, 1, 4, 5});  \
  }                                                                    \
  void pen_linear_fused_dw##suffix(const struct pen_call *call) {      \
    multiply(call, pen_linear_dw##suffix, (const int[]){0, 1, 2, -1}); \
  }
FUSED()
FUSED(_bf16)
