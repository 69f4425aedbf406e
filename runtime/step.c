/* step.c: learning rate, clipping and the loss of a step (see step.h). All in f64, in one order: the same bits everywhere. */
#include "runtime/step.h"

#include <math.h>

double pen_learning_rate(const struct pen_optimizer *optimizer, uint64_t step) {
  if (step <= optimizer->warmup_steps) {
    return optimizer->learning_rate * (double)step / (double)optimizer->warmup_steps;
  }
  double t = 1.0;
  if (step < optimizer->steps) {
    t = (double)(step - optimizer->warmup_steps) / (double)(optimizer->steps - optimizer->warmup_steps);
  }
  double ratio = optimizer->minimum_ratio;
  switch (optimizer->decay) {
    case PEN_DECAY_LINEAR:
      return optimizer->learning_rate * (1.0 - (1.0 - ratio) * t);
    case PEN_DECAY_COSINE:
      return optimizer->learning_rate * (ratio + (1.0 - ratio) * (1.0 + cos(M_PI * t)) / 2.0);
    default:
      return optimizer->learning_rate;
  }
}

double pen_board_norm(const struct pen_plan *plan, const double *board) {
  double sum = 0.0;
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    sum += board[w]; /* 0 for a frozen weight */
  }
  return sqrt(sum);
}

double pen_board_loss_sum(const struct pen_plan *plan, const double *board) {
  double sum = 0.0;
  for (uint32_t m = 0; m < plan->microbatch_count; m++) {
    sum += board[plan->weight_count + m];
  }
  return sum;
}

double pen_board_loss(const struct pen_plan *plan, const double *board, uint64_t targets) {
  double sum = pen_board_loss_sum(plan, board);
  return plan->loss_is_mean && targets != 0 ? sum / (double)targets : sum;
}

/* A norm that is not finite leaves a scale that is not: the damage shows in the log rather than hide in the weights. */
static double gradient_scale(const struct pen_optimizer *optimizer, double norm) {
  if (optimizer->clip_norm == 0.0) {
    return 1.0;
  }
  double scale = optimizer->clip_norm / (norm + 1e-6);
  return scale > 1.0 ? 1.0 : scale;
}

struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step, double norm) {
  return (struct pen_adamw){
      .learning_rate = pen_learning_rate(optimizer, step),
      .beta1 = optimizer->beta1,
      .beta2 = optimizer->beta2,
      .epsilon = optimizer->epsilon,
      .weight_decay = optimizer->weight_decay,
      .gradient_scale = gradient_scale(optimizer, norm),
      .correction1 = 1.0 - pow(optimizer->beta1, (double)step),
      .correction2 = 1.0 - pow(optimizer->beta2, (double)step),
  };
}
