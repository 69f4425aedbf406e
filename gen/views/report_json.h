/* report_json.h: the plan in figures, as JSON. */
#ifndef PEN_REPORT_JSON_H
#define PEN_REPORT_JSON_H

#include <stdio.h>

#include "gen/schedule/order.h"
#include "gen/search/search.h"
#include "gen/timing/collective_sums.h"
#include "gen/timing/lower_bound.h"
#include "gen/timing/critical_path.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* Writes the report of docs/design.md section 10 for the train profile, with lower bounds,
 * critical path and pen_collective_sums(); and, unless `search` is null, the result of the search
 * for the order; and, for each fallback, its size and its makespan ([plan->fallback_count]). `step`
 * is pen_step_time(). Times are in the unit of the costs. */
void pen_report_json(FILE *out, const struct pen_plan *plan, const struct pen_timing *timing,
                     const struct pen_order *order, const struct pen_path *path,
                     const struct pen_bounds *bounds, const struct pen_collective_sum *sums,
                     const struct pen_search *search, const double *fallback_makespans,
                     double step);

#endif
