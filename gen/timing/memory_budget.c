/* budget.c: what a rank may hold at once, and what each action adds to it.
 *
 * A stage and microbatch begins to hold when its F starts: what I needs and what W needs. When I
 * ends, only what W needs is left, with what I adds to it; when W (or B) ends, nothing. A rank
 * holds the sum over its stages and microbatches, and the sum may not exceed the limit at any time.
 * Weights that replicas share out (data_parallel.shard) are whole while they are used: all step, or
 * while an action of their stage runs (data_parallel.reshard). Two units: shares, as
 * pipeline.live_limit counts (one microbatch of one stage is costs.live_backward, whatever the
 * stage), and bytes, as memory.limit_mib does. For bytes, a program's own temporaries count while
 * it runs. Source: the limits of Qi et al. 2023, arXiv 2401.10241, section 3 (their dM_B, dM_W),
 * stage by stage. */
#include "gen/timing/memory_budget.h"

#include <math.h>

#include "gen/layout/persistent.h"
#include "gen/layout/stage_buffers.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
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

/* ---- from the plan's tensors ---- */

static double boundary_bytes(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE ? 0 : (double)pen_aligned(graph->value[value].bytes);
}

/* Holds of a stage in bytes: its programs', with the messages that come for it and those that it
 * sends at once. Returns the bytes of its weights that UNSHARD brings together. */
static double hold_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                         struct pen_hold hold[PEN_PROGRAMS]) {
  struct pen_stage_buffers blocks =
      pen_stage_buffers_of(partition, graph, &(struct pen_buffer_split){.kind = PEN_SPLIT_NONE});
  double come[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = boundary_bytes(graph, graph->input),
                               [PEN_PROGRAM_I] = boundary_bytes(graph, graph->output_gradient)};
  double gone[PEN_PROGRAMS] = {0};
  if (blocks.output_last <= PEN_PROGRAM_F)
    gone[PEN_PROGRAM_F] = boundary_bytes(graph, graph->output);
  if (blocks.input_gradient_last <= PEN_PROGRAM_I)
    gone[PEN_PROGRAM_I] = boundary_bytes(graph, graph->input_gradient);
  come[PEN_PROGRAM_B] = come[PEN_PROGRAM_I];
  gone[PEN_PROGRAM_B] = gone[PEN_PROGRAM_I];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    double remains = come[p] + (double)blocks.remains[p];
    hold[p] = (struct pen_hold){fmax(0, fmax(come[p] + (double)blocks.peak[p], remains)),
                                remains - gone[p]};
  }
  return (double)blocks.bytes[PEN_BASE_UNSHARDED];
}

static double resident_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                             uint32_t rank) {
  double bytes = 0;
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    for (size_t i = 0; partition->rank_of[stage] == rank && i < graph[stage]->weight_count; i++)
      bytes += (double)pen_resident_bytes(partition, graph[stage], i);
  return bytes;
}

static struct pen_budget *budget_in_bytes(const struct pen_topology *t,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          struct pen_graph *const *graph, const double *slack) {
  struct pen_budget *budget = pen_budget_none(partition->rank_count, partition->stage_count);
  budget->limited = budget->estimated = true;
  budget->whole = pen_new(partition->stage_count, sizeof *budget->whole);
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    budget->limit[rank] = (double)t->memory_limit_mib * 1048576.0 -
                          resident_bytes(partition, graph, rank) - (slack ? slack[rank] : 0);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    double unsharded = hold_bytes(partition, graph[stage], budget->hold[stage]);
    if (!training->reshards_each_use) budget->limit[partition->rank_of[stage]] -= unsharded;
    for (int p = 0; p < PEN_PROGRAMS && training->reshards_each_use; p++)
      budget->hold[stage][p].peak += unsharded;
    budget->whole[stage] = training->reshards_each_use ? unsharded : 0;
  }
  return budget;
}

struct pen_budget *pen_budget_of(const struct pen_topology *t,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack) {
  if (!t->has_pipeline_live_limit && !t->memory_limit_mib)
    return pen_budget_none(partition->rank_count, partition->stage_count);
  if (!t->has_pipeline_live_limit) return budget_in_bytes(t, partition, training, graph, slack);
  double *weight = pen_new(partition->stage_count, sizeof *weight);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    struct pen_hold hold[PEN_PROGRAMS] = {{0, 0}};
    weight[stage] = t->costs_live_weight;
    if (t->has_costs_live_weight) continue;
    hold_bytes(partition, graph[stage], hold);
    double backward = hold[PEN_PROGRAM_F].remains, left = backward + hold[PEN_PROGRAM_I].remains;
    weight[stage] = backward > 0 ? t->costs_live_backward * fmax(0, left) / backward : 0;
  }
  return pen_budget_live(partition->rank_count, partition->stage_count, t->pipeline_live_limit,
                         t->costs_live_backward, weight);
}

/* ---- does it fit ---- */

/* Sums of the same reals in another order differ by rounding alone. */
static bool within(double held, double limit) { return held <= limit + 1e-9 * fabs(limit); }

bool pen_budget_holds(const struct pen_budget *budget, const struct pen_order *order) {
  for (uint32_t rank = 0; budget->limited && rank < order->rank_count; rank++) {
    double held = 0;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      const struct pen_compute *action = &order->action[rank][i];
      const struct pen_hold *hold = &budget->hold[action->stage][pen_program_of(action->kind)];
      double peak = hold->peak; /* a pair runs at once: both may be at their most, of one stage with
                                   the same weights */
      if (action->overlaps && i + 1 < order->count[rank]) {
        peak += budget->hold[action[1].stage][pen_program_of(action[1].kind)].peak;
        if (action[1].stage == action->stage && budget->whole) peak -= budget->whole[action->stage];
      }
      if (!within(held + peak, budget->limit[rank])) return false;
      held += hold->remains;
    }
  }
  return true;
}

/* What I and the W right after it add at their most. */
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
         !within(hold[PEN_PROGRAM_F].remains + split_peak(hold), budget->limit[rank]);
}

double pen_budget_least(const struct pen_budget *budget, uint32_t stage) {
  const struct pen_hold *hold = budget->hold[stage];
  double backward = fmin(split_peak(hold), hold[PEN_PROGRAM_B].peak);
  return fmax(hold[PEN_PROGRAM_F].peak, hold[PEN_PROGRAM_F].remains + backward);
}
