/* step_stats.c: the norm and the loss of a step (see step_stats.h), in f64 and in one order, so
 * that all ranks get the same bits. */
#include "runtime/comm/step_stats.h"

#include <math.h>

#include "runtime/plan/shard.h"

double pen_step_stats_norm(const struct pen_plan *plan, const double *stats) {
  double sum = 0.0, most = 0.0;
  for (uint32_t e = 0; e < pen_entry_count(plan); e++) { /* a frozen weight's entries are 0 */
    for (uint32_t shard = 0; shard < pen_group_size(plan, PEN_SHARD); shard++) {
      double entry = stats[pen_step_stats_first(plan, pen_shard_owner(plan, e, shard)) + e];
      sum += entry;
      most = entry > most ? entry : most;
    }
  }
  return plan->optimizer.norm == PEN_NORM_TWO ? sqrt(sum) : isnan(sum) ? sum : most;
}

double pen_step_stats_loss_sum(const struct pen_plan *plan, const double *stats) {
  double sum = 0.0;
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    for (uint32_t m = 0; m < plan->loss_count; m++) {
      sum += stats[pen_step_stats_first(plan, d) + pen_entry_count(plan) + m];
    }
  }
  return sum;
}

double pen_step_stats_loss(const struct pen_plan *plan, const double *stats, uint64_t targets) {
  double sum = pen_step_stats_loss_sum(plan, stats);
  return plan->loss_is_mean ? sum / (double)targets : sum;
}

struct pen_router_losses pen_step_stats_router_losses(const struct pen_plan *plan,
                                                      const double *stats) {
  double sum[2] = {0, 0};
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    const double *losses = stats + pen_step_stats_first(plan, d) + pen_entry_count(plan);
    for (uint32_t row = 1; row < pen_loss_rows(plan); row++) {
      for (uint32_t m = 0; m < plan->loss_count; m++) {
        sum[(row - 1) % 2] += losses[(size_t)row * plan->loss_count + m];
      }
    }
  }
  return (struct pen_router_losses){.aux = sum[0], .z = sum[1]};
}

double pen_step_stats_choices(const struct pen_plan *plan, const double *stats, uint32_t router,
                              uint32_t expert) {
  const uint64_t entry = pen_stats_row_first(plan, pen_loss_rows(plan) + router) + expert;
  double sum = 0;
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    sum += stats[pen_step_stats_first(plan, d) + entry];
  }
  return sum;
}

struct pen_expert_load pen_step_stats_load(const struct pen_plan *plan, const double *stats) {
  struct pen_expert_load load = {0, 0};
  for (uint32_t r = 0; r < plan->router_count; r++) {
    const uint32_t experts = plan->routers[r].experts;
    double sum = 0, most = 0;
    for (uint32_t e = 0; e < experts; e++) {
      const double choices = pen_step_stats_choices(plan, stats, r, e);
      sum += choices;
      most = choices > most ? choices : most;
      load.idle += choices <= 0;
    }
    load.greatest = fmax(load.greatest, most * experts / sum);
  }
  return load;
}

struct pen_evaluated pen_evaluated_of(const struct pen_plan *plan, double sum, uint64_t targets,
                                      uint64_t steps) {
  const double mean = sum / (double)targets, loss = plan->loss_is_mean ? mean : sum / (double)steps;
  return (struct pen_evaluated){.loss = loss, .perplexity = exp(plan->needs_tokens ? mean : loss)};
}

bool pen_step_stats_diverged(const struct pen_plan *plan, const double *stats, uint64_t targets) {
  return targets > 0 &&
         !isfinite(plan->optimizer.clip_norm > 0 ? pen_step_stats_norm(plan, stats)
                                                 : pen_step_stats_loss(plan, stats, targets));
}
