/* step_stats.h: the gradient norm and the loss of a step (docs/contracts.md section 9), from the
 * step statistics that all ranks publish. */
#ifndef PEN_STEP_STATS_H
#define PEN_STEP_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"

/* The index of a data rank's first entry in the statistics of a step. */
static inline size_t pen_step_stats_first(const struct pen_plan *plan, uint32_t data_rank) {
  return data_rank * (size_t)pen_stats_entries(plan);
}

/* The gradients' norm before clipping: tensors in model order, the shards of each in order. It is
 * not finite if any gradient is not. */
double pen_step_stats_norm(const struct pen_plan *plan, const double *stats);

/* The step's loss: replica after replica, microbatches in rising order; pen_step_stats_loss_sum()
 * before it is divided by the targets that count, of which there is at least one: a step without
 * any has no loss, and its gradients have no norm. */
double pen_step_stats_loss_sum(const struct pen_plan *plan, const double *stats);
double pen_step_stats_loss(const struct pen_plan *plan, const double *stats, uint64_t targets);

/* The aux losses of all layers' routers in a training step, or their z-losses: replica after
 * replica, layers and microbatches in rising order. Each has its factors: their sum is the step's.
 */
struct pen_router_losses {
  double aux, z;
};
struct pen_router_losses pen_step_stats_router_losses(const struct pen_plan *plan,
                                                      const double *stats);

/* Of a training step: how often a router has chosen an expert, in all microbatches and replicas,
 * exactly. */
double pen_step_stats_choices(const struct pen_plan *plan, const double *stats, uint32_t router,
                              uint32_t expert);

/* Of a training step: the greatest over the routers of the choices of an expert over the mean of
 * the router's; and the experts of all routers that none has chosen. */
struct pen_expert_load {
  double greatest;
  uint64_t idle;
};
struct pen_expert_load pen_step_stats_load(const struct pen_plan *plan, const double *stats);

/* Of an evaluation whose losses add up to `sum`, over so many targets, at least one, and steps: its
 * loss, which of a plan whose loss is a sum is one step's, as training logs it; and its perplexity,
 * which is of the mean over the targets where they are tokens. */
struct pen_evaluated {
  double loss, perplexity;
};
struct pen_evaluated pen_evaluated_of(const struct pen_plan *plan, double sum, uint64_t targets,
                                      uint64_t steps);

/* Whether a step with targets has diverged: its norm is not finite, so that all ranks skip it; or,
 * where gradients are not clipped and no rank knows the norm in time, its loss is not finite. */
bool pen_step_stats_diverged(const struct pen_plan *plan, const double *stats, uint64_t targets);

#endif
