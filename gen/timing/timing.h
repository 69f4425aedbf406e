/* timing.h: gen/timing gives each action of an order its start and end under a cost model.
 *
 * In: an order, the partition, and costs (from the topology or measured). Out: a struct pen_timing,
 * the lower bounds that it is compared with, and its critical path. The parts:
 *
 *   cost.c, cost_model.c                    what the actions of each stage cost
 *   measured_cost.c, measured_links.c       the same as it was measured, by blocks and messages
 *   costs_json.c                            the values of a file of measured costs
 *   simulate.c                              runs an order
 *   collective_bytes.c, collective_cost.c   what collectives send and cost
 *   collectives.c, replica_step.c           adds the collectives of the replicas
 *   collective_sums.c                       what they take of each rank
 *   retiming.c, robustness.c                the same order with other costs
 *   lower_bound.c, bound_terms.c            what no order can beat, also under a memory limit
 *   memory_budget.c                         the memory limit of each rank
 *   step_time.c                             the step with norm and optimizer, by measured costs
 *   critical_path.c                         the actions that the length of the step depends on
 */
#ifndef PEN_TIMING_H
#define PEN_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"

/* The cost of each action of one stage, in seconds or the unit of the topology's costs. */
struct pen_stage_cost {
  double forward, backward_input, backward_weight;
  double send; /* from the end of an action until its message arrives at another rank of its host */
  double shared;    /* the work that I and W both do, and B once; at most backward_weight */
  double send_host; /* as send, to a rank of another host */
  double within[PEN_PROGRAMS];      /* of these, in F, I, W and B: what collectives within it add */
  double routed[PEN_PROGRAM_W + 1]; /* of these, in F, I and W: what costs.expert_imbalance adds */
};

/* The cost of B. */
static inline double pen_backward_cost(const struct pen_stage_cost *cost) {
  return cost->backward_input + cost->backward_weight - cost->shared;
}

struct pen_collectives;
struct pen_collective_cost;

/* A simulated step. */
struct pen_timing {
  bool complete; /* false: the order deadlocks; the times of actions that cannot run are NaN */
  double **start, **end; /* [rank][compute action] */
  uint64_t **turn; /* [rank][compute action]: place in one order in which all actions can run one at
                      a time */
  double makespan; /* from the first start to the end of the step (pen_tied_weight_tail()) */
  double span;     /* the greatest over ranks of last end - first start */
  double work;     /* of the busiest rank */
  double bubble;   /* (span-work)/span */
  double idle_share; /* 1 - mean of busy / makespan: of all ranks, also before their first action */
  double lower_bound;  /* no order of these actions on this placement has a smaller makespan */
  double gap;          /* (makespan-lower_bound)/lower_bound */
  double *busy, *idle; /* [rank]: busy with F, I, W and B; idle = makespan - busy - exchanging */
  double *exchanging;  /* [rank]: time in collectives of the replicas */
  /* With replicas (replica_step.c): their collectives, the order with the collectives among the
   * actions, and its timing. NULL: none. */
  const struct pen_collectives *collectives;
  const struct pen_order *whole_order;
  const struct pen_timing *whole;
  double exposed; /* how much longer the makespan is because of the collectives */
};

/* Runs the list of each rank in order. An action starts when its rank is free and its inputs are
 * available (F of stage s: F of s-1; B or I of s: F of s, and B or I of s+1; W: its I). An input
 * from another rank arrives pen_send_cost() of the producing stage after the end of its action. A
 * pair a|b takes overlap_cost, or the sum of both if that is below 0, and both end together. */
struct pen_timing *pen_simulate(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost, double overlap_cost);

/* The cost of an action or collective; `collective_cost` is for collectives alone. */
double pen_action_cost(const struct pen_stage_cost *cost,
                       const struct pen_collective_cost *collective_cost,
                       const struct pen_compute *action);

/* Frees a timing of pen_simulate_collectives(). */
void pen_timing_free(struct pen_timing *timing, uint32_t rank_count);

/* [rank]: how many actions run before an incomplete timing stops. */
uint32_t *pen_timing_done(const struct pen_timing *timing, const struct pen_order *order);

/* pen_simulate() without the lower bound, of an order that may contain collectives. A collective
 * starts when its rank is free: all replicas run alike, so its peers start it at the same time. */
struct pen_timing *pen_simulate_collectives(const struct pen_order *order,
                                            const struct pen_partition *partition,
                                            const struct pen_training *training,
                                            const struct pen_stage_cost *cost,
                                            const struct pen_collective_cost *collective_cost,
                                            double overlap_cost);

/* pen_simulate(), with the collectives of the replicas placed by the rule (collectives.h)
 * that makes the shortest step; `given`: by PEN_COLLECTIVES_LAST. */
struct pen_timing *pen_simulate_step(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_training *training,
                                     const struct pen_stage_cost *cost,
                                     const struct pen_collective_cost *collective_cost,
                                     double overlap_cost, int profile_kind, bool given);

#endif
