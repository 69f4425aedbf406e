/* step_time.h: the time of a whole training step by measured costs. */
#ifndef PEN_STEP_TIME_H
#define PEN_STEP_TIME_H

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"

/* In milliseconds; NAN: the costs have no NORM and UPDATE (only --costs has), or the
 * topology does not train. */
struct pen_step_time {
  double step;   /* the makespan, NORM and UPDATE */
  double update; /* NORM and UPDATE of the average rank */
};

/* `order` and `timing` are those of the actions: collectives are in timing->whole. */
struct pen_step_time pen_step_time(const struct pen_cost_model *cost,
                                   const struct pen_partition *partition,
                                   const struct pen_order *order, const struct pen_timing *timing);

#endif
