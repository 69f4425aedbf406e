/* step.h: the arithmetic of a training step that is not a kernel's: learning rate, clipping, the
 * step's loss (design.md §9). */
#ifndef PEN_STEP_H
#define PEN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

/* The learning rate of optimizer step k, from 1. */
double pen_learning_rate(const struct pen_optimizer *optimizer, uint64_t step);

/* Where a replica's entries begin on a step's board. */
static inline size_t pen_step_stats_first(const struct pen_plan *plan, uint32_t replica) {
  return replica * (plan->weight_count + (size_t)plan->loss_count);
}

/* The gradients' norm before clipping, from a step's board: tensors in model order, the shards of
 * each in order. Not finite when any gradient is not. */
double pen_step_stats_norm(const struct pen_plan *plan, const double *board);

/* The step's loss: replica after replica, microbatches in rising order; pen_step_stats_loss_sum()
 * before it is divided by the targets that count. A step without any has the mean 0. */
double pen_step_stats_loss_sum(const struct pen_plan *plan, const double *board);
double pen_step_stats_loss(const struct pen_plan *plan, const double *board, uint64_t targets);

/* A step is skipped when it has no targets, or when clip_norm is not 0 (then every rank knows the
 * norm before its UPDATE) and the norm is not finite: weights and moments stay, the step counts.
 * With clip_norm 0 UPDATE leaves alone what has no finite gradient, by itself (pen_adamw_step()).
 */
bool pen_step_skipped(const struct pen_optimizer *optimizer, uint64_t targets, double norm);

/* What AdamW needs in step k, from 1, but for the weight decay, which is each weight's. norm is
 * used when clip_norm is not 0. */
struct pen_adamw pen_adamw_of_step(const struct pen_optimizer *optimizer, uint64_t step,
                                   double norm);

#endif
