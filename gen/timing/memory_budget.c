/* memory_budget.c: the memory limit of each rank, and what each action allocates.
 *
 * F of a stage and microbatch allocates what I and W read. After I, what W reads is left, with what
 * I adds to it; after W (or B), nothing. A rank holds the sum over its stages and microbatches, and
 * the sum never exceeds the limit. The unit is that of pipeline.live_limit (one microbatch of any
 * stage is costs.live_backward) or bytes (gen/search/budget_bytes.c). Source: the limits of Qi et
 * al. 2023, arXiv 2401.10241, section 3 (their dM_B, dM_W), for each stage. */
#include "gen/timing/memory_budget.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

struct pen_budget *pen_budget_none(uint32_t rank_count, uint32_t stage_count) {
  struct pen_budget *budget = pen_new(1, sizeof *budget);
  budget->limit = pen_new(rank_count, sizeof *budget->limit);
  budget->hold = pen_new(stage_count, sizeof *budget->hold);
  for (uint32_t rank = 0; rank < rank_count; rank++) budget->limit[rank] = INFINITY;
  return budget;
}

struct pen_budget *pen_budget_live(uint32_t rank_count, uint32_t stage_count, double limit,
                                   double backward, const double *weight) {
  struct pen_budget *budget = pen_budget_none(rank_count, stage_count);
  budget->limited = true;
  for (uint32_t rank = 0; rank < rank_count; rank++) budget->limit[rank] = limit;
  for (uint32_t stage = 0; stage < stage_count; stage++) {
    budget->hold[stage][PEN_PROGRAM_F] = (struct pen_hold){backward, backward};
    budget->hold[stage][PEN_PROGRAM_I] =
        (struct pen_hold){fmax(0, weight[stage] - backward), weight[stage] - backward};
    budget->hold[stage][PEN_PROGRAM_W] = (struct pen_hold){0, -weight[stage]};
    budget->hold[stage][PEN_PROGRAM_B] = (struct pen_hold){0, -backward};
  }
  return budget;
}

/* The sum of the same numbers in another order may differ by rounding. */
static bool is_within(double held, double limit) { return held <= limit + 1e-9 * fabs(limit); }

double pen_budget_peak(const struct pen_budget *budget, const struct pen_order *order,
                       uint32_t rank) {
  double held = 0, most = 0;
  for (uint32_t i = 0; i < order->count[rank]; i++) {
    const struct pen_compute *action = &order->action[rank][i];
    const struct pen_hold *hold = &budget->hold[action->stage][pen_program_of(action->kind)];
    double peak = hold->peak; /* of a pair the sum, except that weights of one stage count once */
    if (action->overlaps && i + 1 < order->count[rank]) {
      peak += budget->hold[action[1].stage][pen_program_of(action[1].kind)].peak;
      if (action[1].stage == action->stage && budget->whole) peak -= budget->whole[action->stage];
    }
    most = fmax(most, held + peak);
    held += hold->remains;
  }
  return most;
}

bool pen_budget_holds(const struct pen_budget *budget, const struct pen_order *order) {
  for (uint32_t rank = 0; budget->limited && rank < order->rank_count; rank++)
    if (!is_within(pen_budget_peak(budget, order, rank), budget->limit[rank])) return false;
  return true;
}

/* The peak of I and W, run one after the other. */
static double split_peak(const struct pen_hold *hold) {
  return fmax(hold[PEN_PROGRAM_I].peak, hold[PEN_PROGRAM_I].remains + hold[PEN_PROGRAM_W].peak);
}

bool pen_budget_prefers_whole(const struct pen_budget *budget, uint32_t stage) {
  const struct pen_hold *hold = budget->hold[stage];
  return hold[PEN_PROGRAM_B].peak < split_peak(hold);
}

bool pen_budget_forces_whole(const struct pen_budget *budget, uint32_t rank, uint32_t stage) {
  const struct pen_hold *hold = budget->hold[stage];
  return budget->limited && !budget->estimated &&
         !is_within(hold[PEN_PROGRAM_F].remains + split_peak(hold), budget->limit[rank]);
}

double pen_budget_least(const struct pen_budget *budget, uint32_t stage) {
  const struct pen_hold *hold = budget->hold[stage];
  double backward = fmin(split_peak(hold), hold[PEN_PROGRAM_B].peak);
  return fmax(hold[PEN_PROGRAM_F].peak, hold[PEN_PROGRAM_F].remains + backward);
}
