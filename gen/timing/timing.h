/* timing.h: simulates a step: when each action of an order starts and ends, and how close the step
 * is to a lower bound.
 *
 * In: an order, a partition and the costs of stages. Out: a struct pen_timing.
 */
#ifndef PEN_TIMING_H
#define PEN_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"

/* Seconds, or whatever unit the file's costs are in, of one action of one stage. */
struct pen_stage_cost {
  double forward, backward_input, backward_weight;
  double send;   /* from the end of the action to the message's arrival at the other rank */
  double shared; /* what I and W both do when they are apart, and a fused B once; no more than
                    backward_weight */
};

/* What a fused B costs. */
static inline double pen_backward_cost(const struct pen_stage_cost *cost) {
  return cost->backward_input + cost->backward_weight - cost->shared;
}

struct pen_collectives;
struct pen_collective_cost;
struct pen_timing {
  bool complete;         /* false: the order can never finish; times of unreached actions are NaN */
  double **start, **end; /* [rank][compute action] */
  uint64_t **turn;    /* [rank][compute action]: place in one global order in which everything could
                         run one by one */
  double makespan;    /* end of the step (pen_tied_weight_tail) - first start over all ranks */
  double span;        /* greatest over ranks of last end - first start */
  double work;        /* the busiest rank's */
  double bubble;      /* (span-work)/span */
  double lower_bound; /* no order of these actions on this placement has a smaller makespan */
  double gap;         /* (makespan-lower_bound)/lower_bound */
  double *busy, *idle; /* [rank]; busy with F, I, W and B; idle = makespan - busy - exchanging */
  double *exchanging;  /* [rank]: in rows of the exchange between replicas; all 0 unless `whole` is
                          there */
  /* A step of replicas (step_timing.c): the rows of their exchange, and the same run with these
   * among the actions. Null: none. */
  const struct pen_collectives *exchange;
  const struct pen_order *whole_order;
  const struct pen_timing *whole;
  double exposed; /* how much shorter the makespan would be without the exchange */
};

/* Runs each rank's list in order: an action starts when its rank is free and what it needs has come
 * (F of s: F of s-1; B, I of s: B or I of s+1, and the own F; W: the own I). What comes from
 * another rank comes `send` of the producing stage later. A pair a|b takes overlap (or, with
 * overlap_cost < 0, the sum) and both end together. */
struct pen_timing *pen_simulate(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost, double overlap_cost);

/* [rank]: how many actions of an order that cannot finish can run. */
uint32_t *pen_timing_done(const struct pen_timing *timing, const struct pen_order *order);

/* The same but for the lower bound, of lists that hold rows of the exchange between replicas, too:
 * such a row starts when its rank is free. It finds its peers where it is itself, for all replicas
 * run alike. */
struct pen_timing *pen_simulate_collectives(const struct pen_order *order,
                                            const struct pen_partition *partition,
                                            const struct pen_training *training,
                                            const struct pen_stage_cost *cost,
                                            const struct pen_collective_cost *exchange_cost,
                                            double overlap_cost);

/* [rank]: from the end of its last action until a training step is over, whatever the others do. */
double *pen_tied_weight_tail(const struct pen_partition *partition,
                             const struct pen_training *training,
                             const struct pen_stage_cost *cost);

/* pen_simulate(), and with replicas the exchange between them: by whatever rule the step is
 * shortest; `given`: by LAST. */
struct pen_timing *pen_simulate_step(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_training *training,
                                     const struct pen_stage_cost *cost,
                                     const struct pen_collective_cost *exchange_cost,
                                     double overlap_cost, int profile_kind, bool given);

#endif
