/* lower_bound.h: times that no order of given actions on a given placement can beat. */
#ifndef PEN_LOWER_BOUND_H
#define PEN_LOWER_BOUND_H

#include "gen/timing/memory_budget.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

/* Lower bounds of one objective, each proved in bounds.c; 0 where one has nothing to say. */
struct pen_bound {
  double work;   /* the busiest rank's actions */
  double ends;   /* head and tail: what must run elsewhere before a rank can begin and after it has
                    ended */
  double chain;  /* the longest way of one microbatch */
  double memory; /* what a rank cannot do while it may hold no more */
  double greatest; /* of these */
};

struct pen_bounds {
  struct pen_bound makespan, span; /* as struct pen_timing defines them */
};

/* Of all orders of the order's actions, pairs and splits of backward as they are; `budget` null:
 * without limit. O(actions + stages). */
struct pen_bounds pen_bounds_of(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost, double overlap_cost,
                                const struct pen_budget *budget);

/* A bound adds the same costs in another order than the simulation: where rounding alone parts it
 * from a time, it is that time. */
static inline double pen_bound_rounded(double bound, double time) {
  double apart = time > bound ? time - bound : bound - time;
  return apart <= 1e-9 * time ? time : bound;
}

#endif
