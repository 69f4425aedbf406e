/* critical_path.h: the critical path of a simulated step: the chain of actions that fills it from
 * its start to its end. */
#ifndef PEN_CRITICAL_PATH_H
#define PEN_CRITICAL_PATH_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

/* One action of the path, or a pair a|b (by the place of a). It starts when the step before it on
 * the path has ended, plus `sent`: the latency of the message between them, 0 where both are on one
 * rank. */
struct pen_path_step {
  uint32_t rank, index; /* order->action[rank][index] */
  bool pair;
  double start, end, sent;
};

/* Consecutive steps on one rank. */
struct pen_path_leg {
  uint32_t rank;
  size_t first, count; /* steps */
};

struct pen_path {
  struct pen_path_step *step; /* [count], by time */
  size_t count;
  struct pen_path_leg *leg; /* [leg_count] */
  size_t leg_count;
  double compute, sent,
      after; /* their sum is the makespan, but for rounding; after: of pen_tied_weight_tail() */
};

/* The critical path of a complete timing, as pen_simulate() gave it for these arguments. Where
 * several actions end in time, the one before on the same rank is taken: the path has as few
 * messages as that allows. Linear in the actions. */
struct pen_path *pen_critical_path(const struct pen_order *order,
                                   const struct pen_partition *partition,
                                   const struct pen_training *training,
                                   const struct pen_stage_cost *cost,
                                   const struct pen_timing *timing);

/* One line a leg: `rank 3  3F0 ... 3B7  16 actions  4.0 to 52.0`, at most `lines` of them; the
 * middle is left out with its count. 0: all. */
void pen_path_print(FILE *out, const struct pen_path *path, const struct pen_order *order,
                    size_t lines);

#endif
