/* optimizer_step.h: the settings of AdamW in a step (docs/contracts.md section 9). */
#ifndef PEN_OPTIMIZER_STEP_H
#define PEN_OPTIMIZER_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

/* The coefficients of AdamW in step `step` of the run, which counts from 1, before the gradient is
 * clipped and the update is counted (clip_scale() in kernels/device.h), and except the weight
 * decay, which each weight has. A step without targets has a gradient_scale of NaN: weights,
 * moments and updates are unchanged, the step counts for the learning rate alone. So has a step
 * whose norm is not finite, after clipping. With clip_norm 0 the kernel itself skips elements whose
 * gradient is not finite (pen_adamw_step()). */
struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step,
                                   uint64_t targets);

#endif
