/* step.c: learning rate, clipping and the loss of a step (see step.h). All in f64, in one order:
 * the same bits everywhere. */
#include "runtime/comm/step_stats.h"

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

double pen_learning_rate(const struct pen_optimizer *optimizer, uint64_t step) {
  if (step <= optimizer->warmup_steps) {
    return optimizer->learning_rate * (double)step / (double)optimizer->warmup_steps;
  }
  return optimizer->learning_rate * factor[optimizer->decay](optimizer, step);
}

double pen_step_stats_norm(const struct pen_plan *plan, const double *board) {
  double sum = 0.0, most = 0.0;
  for (uint32_t w = 0; w < plan->weight_count; w++) { /* a frozen weight's entries are 0 */
    for (uint32_t shard = 0; shard < plan->replica_count; shard++) {
      uint32_t replica = (uint32_t)(((uint64_t)w + shard) % plan->replica_count);
      double entry = board[pen_step_stats_first(plan, replica) + w];
      sum += entry;
      most = entry > most ? entry : most;
    }
  }
  return plan->optimizer.norm == PEN_NORM_TWO ? sqrt(sum) : isnan(sum) ? sum : most;
}

double pen_step_stats_loss_sum(const struct pen_plan *plan, const double *board) {
  double sum = 0.0;
  for (uint32_t d = 0; d < plan->replica_count; d++) {
    for (uint32_t m = 0; m < plan->loss_count; m++) {
      sum += board[pen_step_stats_first(plan, d) + plan->weight_count + m];
    }
  }
  return sum;
}

double pen_step_stats_loss(const struct pen_plan *plan, const double *board, uint64_t targets) {
  double sum = pen_step_stats_loss_sum(plan, board);
  return plan->loss_is_mean && targets != 0 ? sum / (double)targets : sum;
}

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
