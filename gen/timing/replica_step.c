/* replica_step.c: simulates a step of replicas: the actions and, among them, the collectives.
 *
 * The collectives that take time are inserted into the lists of the ranks, and the lists are
 * simulated like any others. Peers run the same lists with the same costs, so a collective waits
 * for no peer. Collectives before the first action and after the last count for the makespan and
 * its lower bound; span, work and bubble are those of the actions alone.
 *
 * First the actions are simulated alone: collectives can overlap with the idle times. Then each
 * rule of collectives.c is simulated, and the shortest step is taken, the first of equals. */
#include <math.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/collectives.h"
#include "gen/timing/lower_bound.h"
#include "runtime/plan/plan.h"

/* The lists of an order with the collectives in their places. */
static struct pen_order *insert_collectives(const struct pen_order *order,
                                            const struct pen_collectives *collectives) {
  struct pen_order *joint = pen_new(1, sizeof *joint);
  *joint = (struct pen_order){order->rank_count, pen_new(order->rank_count, sizeof(uint32_t)),
                              pen_new(order->rank_count, sizeof(struct pen_compute *))};
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    const struct pen_placed_collective *collective = collectives->collective[rank];
    uint32_t count = order->count[rank], collective_count = collectives->count[rank], next = 0,
             *used = &joint->count[rank];
    struct pen_compute *action = joint->action[rank] =
        pen_new((size_t)count + collective_count + 1, sizeof *action);
    for (uint32_t index = 0; index <= count; index++) {
      for (; next < collective_count && (collective[next].before <= index || index == count);
           next++)
        if (pen_kind_reads_peers(collective[next].kind))
          action[(*used)++] =
              (struct pen_compute){collective[next].kind, false, collective[next].stage, 0};
      if (index < count) action[(*used)++] = order->action[rank][index];
    }
  }
  return joint;
}

/* [turn of the whole order]: the turn among the compute actions alone. */
static uint64_t *compute_turns(const struct pen_order *joint, const struct pen_timing *whole) {
  size_t total = 0;
  for (uint32_t rank = 0; rank < joint->rank_count; rank++) total += joint->count[rank];
  uint64_t *number = pen_new(total + 1, sizeof *number), next = 0;
  for (uint32_t rank = 0; rank < joint->rank_count; rank++)
    for (uint32_t i = 0; i < joint->count[rank]; i++)
      number[whole->turn[rank][i]] = joint->action[rank][i].kind <= PEN_W;
  for (size_t turn = 0; turn < total; turn++) {
    bool counts = number[turn];
    number[turn] = next;
    next += counts;
  }
  return number;
}

/* Copies the times of the compute actions. */
static void copy_compute_times(struct pen_timing *timing, const struct pen_order *joint,
                               const struct pen_timing *whole) {
  uint64_t *number = compute_turns(joint, whole);
  for (uint32_t rank = 0; rank < joint->rank_count; rank++)
    for (uint32_t i = 0, index = 0; i < joint->count[rank]; i++) {
      if (joint->action[rank][i].kind > PEN_W) continue;
      timing->start[rank][index] = whole->start[rank][i];
      timing->end[rank][index] = whole->end[rank][i];
      timing->turn[rank][index++] = number[whole->turn[rank][i]];
    }
  pen_free(number);
}

/* [stage]: the same without what collectives within the actions add. */
static struct pen_stage_cost *kernel_costs(const struct pen_partition *partition,
                                           const struct pen_stage_cost *cost) {
  struct pen_stage_cost *kernels = pen_new(partition->stage_count, sizeof *kernels);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    const double *within = cost[s].within;
    kernels[s] = cost[s];
    kernels[s].forward -= within[PEN_PROGRAM_F];
    kernels[s].backward_input -= within[PEN_PROGRAM_I];
    kernels[s].backward_weight -= within[PEN_PROGRAM_W];
    kernels[s].shared -= within[PEN_PROGRAM_I] + within[PEN_PROGRAM_W] - within[PEN_PROGRAM_B];
  }
  return kernels;
}

/* The makespan if no collective took any time. */
static double makespan_alone(const struct pen_order *order, const struct pen_partition *partition,
                             const struct pen_training *training, const struct pen_stage_cost *cost,
                             double overlap_cost) {
  struct pen_stage_cost *kernels = kernel_costs(partition, cost);
  double makespan = pen_simulate(order, partition, training, kernels, overlap_cost)->makespan;
  pen_free(kernels);
  return makespan;
}

static bool has_collectives_within(const struct pen_partition *partition,
                                   const struct pen_stage_cost *cost) {
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (int p = 0; p < PEN_PROGRAMS; p++)
      if (cost[s].within[p] > 0) return true;
  return false;
}

struct pen_timing *pen_simulate_step(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_training *training,
                                     const struct pen_stage_cost *cost,
                                     const struct pen_collective_cost *collective_cost,
                                     double overlap_cost, int profile_kind, bool given) {
  struct pen_timing *timing = pen_simulate(order, partition, training, cost, overlap_cost);
  struct pen_timing *best = NULL;
  if (!collective_cost || !timing->complete || !isfinite(timing->makespan)) return timing;
  double alone = has_collectives_within(partition, cost)
                     ? makespan_alone(order, partition, training, cost, overlap_cost)
                     : timing->makespan;
  timing->exposed = timing->makespan - alone;
  for (int rule = given ? PEN_COLLECTIVES_LAST : PEN_COLLECTIVES_FITTING;
       rule < PEN_COLLECTIVES_RULES; rule++) {
    const struct pen_collectives *collectives =
        pen_collectives_of(order, partition, training, timing, collective_cost,
                           (enum pen_collectives_rule)rule, profile_kind);
    if (!collectives) return timing;
    const struct pen_order *joint = insert_collectives(order, collectives);
    struct pen_timing *whole =
        pen_simulate_collectives(joint, partition, training, cost, collective_cost, overlap_cost);
    if (!whole->complete)
      pen_stop(PEN_EXIT_INTERNAL, "step timing: the collectives of the replicas deadlock");
    if (best && !(whole->makespan < best->makespan)) continue;
    best = whole;
    timing->collectives = collectives;
    timing->whole_order = joint;
  }
  copy_compute_times(timing, timing->whole_order, best);
  timing->whole = best;
  timing->exposed = best->makespan - alone;
  timing->makespan = best->makespan;
  timing->span = best->span;
  timing->bubble = best->bubble;
  timing->idle_share = best->idle_share;
  timing->idle = best->idle;
  timing->exchanging = best->exchanging;
  double bound =
      pen_bounds_of(order, partition, training, cost,
                    pen_exchange_least(partition, training, collective_cost, profile_kind),
                    overlap_cost, NULL)
          .makespan.greatest;
  timing->lower_bound = pen_bound_rounded(bound, timing->makespan);
  timing->gap =
      timing->lower_bound > 0 ? (timing->makespan - timing->lower_bound) / timing->lower_bound : 0;
  best->lower_bound = timing->lower_bound;
  best->gap = timing->gap;
  return timing;
}
