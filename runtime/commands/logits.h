/* logits.h: a row of logits, as the model's dtype has it in memory. */
#ifndef PEN_LOGITS_H
#define PEN_LOGITS_H

#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

/* Bytes of a row, [vocab]. */
static inline size_t pen_logit_row_bytes(const struct pen_plan *plan) {
  return plan->vocab * (size_t)pen_dtype_bytes(plan->dtype);
}

/* Logits of a row as f32: themselves, or converted into widened[count]. */
static inline const float *pen_logit_row(const struct pen_plan *plan, const void *row, size_t count,
                                         float *widened) {
  if (plan->dtype != PEN_BF16) {
    return row;
  }
  pen_bf16_to_f32(widened, row, count);
  return widened;
}

#endif
