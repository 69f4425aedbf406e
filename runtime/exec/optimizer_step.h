/* optimizer_step.h: what an optimizer step does beside the AdamW kernel (docs/design.md section 9).
 */
#ifndef PEN_OPTIMIZER_STEP_H
#define PEN_OPTIMIZER_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

/* A step is skipped when it has no targets, or when clip_norm is not 0 (then every rank knows the
 * norm before its UPDATE) and the norm is not finite: weights and moments are unchanged, the step
 * counts. With clip_norm 0 the kernel itself skips elements whose gradient is not finite
 * (pen_adamw_step()). */
bool pen_step_skipped(const struct pen_optimizer *optimizer, uint64_t targets, double norm);

/* The coefficients of AdamW in step `step`, which counts from 1, except the weight decay, which
 * each weight has. `norm` is read only when clip_norm is not 0. */
struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step,
                                   double norm);

#endif
