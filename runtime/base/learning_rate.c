/* learning_rate.c: warm-up and decay of the learning rate, in f64. */
#include "runtime/base/learning_rate.h"

#include <math.h>

/* The part of the steps after `first` that are over, up to `steps`; all, where `first` is no
 * earlier: nothing is left to decay over. */
static double part_over(const struct pen_optimizer *optimizer, uint64_t first, uint64_t step) {
  if (step >= optimizer->steps) {
    return 1.0;
  }
  return step < first ? 0.0 : (double)(step - first) / (double)(optimizer->steps - first);
}

static double constant(const struct pen_optimizer *optimizer, uint64_t step) {
  (void)optimizer, (void)step;
  return 1.0;
}

static double linear(const struct pen_optimizer *optimizer, uint64_t step) {
  return 1.0 -
         (1.0 - optimizer->minimum_ratio) * part_over(optimizer, optimizer->warmup_steps, step);
}

static double cosine(const struct pen_optimizer *optimizer, uint64_t step) {
  double ratio = optimizer->minimum_ratio;
  return ratio + (1.0 - ratio) *
                     (1.0 + cos(M_PI * part_over(optimizer, optimizer->warmup_steps, step))) / 2.0;
}

static double warmup_stable_decay(const struct pen_optimizer *optimizer, uint64_t step) {
  return 1.0 - (1.0 - optimizer->minimum_ratio) *
                   part_over(optimizer, optimizer->steps - optimizer->decay_steps, step);
}

/* What the learning rate is multiplied by after the warm-up. */
static double (*const factor[PEN_DECAYS])(const struct pen_optimizer *optimizer, uint64_t step) = {
    [PEN_DECAY_CONSTANT] = constant,
    [PEN_DECAY_LINEAR] = linear,
    [PEN_DECAY_COSINE] = cosine,
    [PEN_DECAY_WSD] = warmup_stable_decay,
};

static double chosen = NAN; /* by pen_learning_rate_set() */

void pen_learning_rate_set(double learning_rate) { chosen = learning_rate; }

double pen_learning_rate(const struct pen_optimizer *optimizer, uint64_t step) {
  if (!isnan(chosen)) {
    return chosen;
  }
  if (step <= optimizer->warmup_steps) {
    return optimizer->learning_rate * (double)step / (double)optimizer->warmup_steps;
  }
  return optimizer->learning_rate * factor[optimizer->decay](optimizer, step);
}
