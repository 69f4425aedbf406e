/* optimizer_step.c: gradient clipping and the coefficients of AdamW, in f64. */
#include "runtime/exec/optimizer_step.h"

#include <math.h>

#include "runtime/base/learning_rate.h"

bool pen_step_skipped(const struct pen_optimizer *optimizer, uint64_t targets, double norm) {
  return targets == 0 || (optimizer->clip_norm != 0.0 && !isfinite(norm));
}

static double gradient_scale(const struct pen_optimizer *optimizer, double norm) {
  if (optimizer->clip_norm == 0.0) {
    return 1.0;
  }
  double scale = optimizer->clip_norm / (norm + 1e-6);
  return scale > 1.0 ? 1.0 : scale;
}

struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step,
                                   double norm) {
  return (struct pen_adamw){
      .learning_rate = pen_learning_rate(optimizer, step),
      .beta1 = optimizer->beta1,
      .beta2 = optimizer->beta2,
      .epsilon = optimizer->epsilon,
      .gradient_scale = gradient_scale(optimizer, norm),
      .correction1 = 1.0 - pow(optimizer->beta1, (double)step),
      .correction2 = 1.0 - pow(optimizer->beta2, (double)step),
  };
}
