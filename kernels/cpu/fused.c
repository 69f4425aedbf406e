/* fused.c: products of one value as one, and gated linear units of their results: on the CPU, which
 * has no such plans, the reference of the CUDA kernels. Weights lie one after the other, so such a
 * product is one with all rows. */
#include "kernels/cpu/cpu.h"

/* Calls the product of that kind for operands of the call: x, or dy; the first weight or its
 * gradient; the addend; the result. */
static void multiply(const struct pen_call *call, pen_kernel *product, const int operand[4]) {
  struct pen_call whole = {.dim = {call->dim[0], call->dim[1], call->dim[2]},
                           .workspace = call->workspace};
  for (int k = 0; k < 4; k++) whole.operand[k] = operand[k] < 0 ? NULL : call->operand[operand[k]];
  product(&whole);
}

/* y = gate g(gate) up by the op of that kind, a row at a time. */
static void unit_rows(const struct pen_call *call, enum pen_op_kind kind, enum pen_dtype dtype) {
  pen_kernel *unit = pen_kernel_of(kind, dtype);
  const size_t bytes = (size_t)call->dim[1] * pen_dtype_bytes(dtype);
  char *x = call->operand[0], *y = call->operand[1];
  for (int64_t r = 0; r < call->dim[0]; r++, x += 2 * bytes, y += bytes)
    unit(&(struct pen_call){.operand = {x, x + bytes, y}, .dim = {call->dim[1]}});
}

static void unit_dx_rows(const struct pen_call *call, enum pen_op_kind kind, enum pen_dtype dtype) {
  pen_kernel *unit = pen_kernel_of(kind, dtype);
  const size_t bytes = (size_t)call->dim[1] * pen_dtype_bytes(dtype);
  char *dy = call->operand[0], *x = call->operand[1], *dx = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++, dy += bytes, x += 2 * bytes, dx += 2 * bytes)
    unit(&(struct pen_call){.operand = {dy, x, x + bytes, dx, dx + bytes}, .dim = {call->dim[1]}});
}

#define FUSED(suffix, dtype)                                           \
  void pen_linear_fused##suffix(const struct pen_call *call) {         \
    multiply(call, pen_linear##suffix, (const int[]){0, 1, -1, 4});    \
  }                                                                    \
  void pen_linear_fused_dx##suffix(const struct pen_call *call) {      \
    multiply(call, pen_linear_dx##suffix, (const int[]){0, 1, 4, 5});  \
  }                                                                    \
  void pen_linear_fused_dw##suffix(const struct pen_call *call) {      \
    multiply(call, pen_linear_dw##suffix, (const int[]){0, 1, 2, -1}); \
  }                                                                    \
  void pen_swiglu_fused##suffix(const struct pen_call *call) {         \
    unit_rows(call, PEN_OP_SWIGLU, dtype);                             \
  }                                                                    \
  void pen_swiglu_fused_dx##suffix(const struct pen_call *call) {      \
    unit_dx_rows(call, PEN_OP_SWIGLU_DX, dtype);                       \
  }                                                                    \
  void pen_geglu_fused##suffix(const struct pen_call *call) {          \
    unit_rows(call, PEN_OP_GEGLU, dtype);                              \
  }                                                                    \
  void pen_geglu_fused_dx##suffix(const struct pen_call *call) {       \
    unit_dx_rows(call, PEN_OP_GEGLU_DX, dtype);                        \
  }
FUSED(, PEN_F32)
FUSED(_bf16, PEN_BF16)
