/* critical_path.h: the critical path of a simulated step: the chain of actions and messages,
 * without a pause, from its start to its end. */
#ifndef PEN_CRITICAL_PATH_H
#define PEN_CRITICAL_PATH_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

/* One action of the path, or a pair a|b (by the index of a). It starts `sent` after the end of the
 * path step before: the latency of the message between them, 0 if both are on one rank. */
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
  double compute, exchanged, sent, after; /* their sum is the makespan, except for rounding;
                                             exchanged: collectives; after: the
                                             pen_tied_weight_tail() of the last rank */
};

/* The critical path of a complete timing, which pen_simulate() returned for these arguments. If an
 * action could follow several others, the path goes to the one before it on the same rank. Linear
 * in the actions. */
struct pen_path *pen_critical_path(const struct pen_order *order,
                                   const struct pen_partition *partition,
                                   const struct pen_training *training,
                                   const struct pen_stage_cost *cost,
                                   const struct pen_timing *timing);

/* Writes one line a leg: `rank 3  3F0 ... 3B7  16 actions  4.0 to 52.0`. With more legs than
 * `lines` (0: no limit) the middle ones are left out, and their number is written. */
void pen_path_print(FILE *out, const struct pen_path *path, const struct pen_order *order,
                    size_t lines);

#endif
