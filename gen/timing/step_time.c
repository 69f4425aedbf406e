/* step_time.c: the time of a whole training step by measured costs (see step_time.h).
 *
 * After its last action a rank sums the squares of its gradients. No rank updates a weight before
 * all have done so. So the step ends when the slowest rank has updated its weights, after the last
 * rank has its norm. Where shards differ in size the largest one counts. */
#include "gen/timing/step_time.h"

#include <math.h>

#include "gen/base/arena.h"
#include "runtime/plan/shard.h"

double pen_step_time(const struct pen_plan *plan, const struct pen_cost_model *cost,
                     const struct pen_order *order, const struct pen_timing *timing) {
  if (!cost->has_step || plan->profiles[0].kind != PEN_TRAIN) return NAN;
  const uint32_t updated_by = pen_moments_are_sharded(plan) ? plan->shard_ranks : 1;
  double *norm = pen_new(plan->rank_count, sizeof *norm),
         *update = pen_new(plan->rank_count, sizeof *update);
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &plan->weights[w];
    if (weight->frozen || pen_first_member(plan, weight) > 0) continue;
    norm[weight->rank] +=
        cost->norm_element * (double)pen_shard_most(weight->count, plan->shard_ranks);
    update[weight->rank] +=
        cost->update_element * (double)pen_shard_most(weight->count, updated_by);
  }
  double normed = timing->makespan, longest = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    const uint32_t count = order->count[rank];
    normed = fmax(normed, (count ? timing->end[rank][count - 1] : 0) + norm[rank]);
    longest = fmax(longest, update[rank]);
  }
  pen_free(norm);
  pen_free(update);
  return normed + longest;
}
