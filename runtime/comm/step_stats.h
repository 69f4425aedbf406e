/* step.h: the arithmetic of a training step that is not a kernel's: learning rate, clipping, the
 * step's loss (design.md §9). */
#ifndef PEN_STEP_STATS_H
#define PEN_STEP_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

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

#endif
