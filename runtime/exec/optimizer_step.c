/* optimizer_step.c: the settings of AdamW in a step, in f64. */
#include "runtime/exec/optimizer_step.h"

#include <math.h>

#include "runtime/base/learning_rate.h"

struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step,
                                   uint64_t targets) {
  return (struct pen_adamw){
      .learning_rate = pen_learning_rate(optimizer, step),
      .beta1 = optimizer->beta1,
      .beta2 = optimizer->beta2,
      .epsilon = optimizer->epsilon,
      .gradient_scale = targets == 0 ? (double)NAN : 1.0,
  };
}
