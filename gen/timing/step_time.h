/* step_time.h: the time of a whole training step by measured costs. */
#ifndef PEN_STEP_TIME_H
#define PEN_STEP_TIME_H

#include "gen/schedule/order.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* The makespan, NORM and UPDATE, in milliseconds; NAN: the costs have neither (only version 2 of
 * --costs has). `order` and `timing` are those with the collectives. */
double pen_step_time(const struct pen_plan *plan, const struct pen_cost_model *cost,
                     const struct pen_order *order, const struct pen_timing *timing);

#endif
