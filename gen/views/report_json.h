/* report.h: the plan in figures, as JSON. */
#ifndef PEN_REPORT_H
#define PEN_REPORT_H

#include <stdio.h>

#include "gen/timing/critical_path.h"
#include "gen/search/search.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* Writes the report of design.md section 10, fields to the letter, of the train profile; its lower
 * bounds and critical path; and, unless `search` is null, how the search for its order ended. Times
 * are in the costs' unit. */
void pen_report(FILE *out, const struct pen_plan *plan, const struct pen_timing *timing,
                const struct pen_order *order, const struct pen_path *path,
                const struct pen_bounds *bounds, const struct pen_search *search);

#endif
