/* because.h: why the first candidate is the first. */
#ifndef PEN_BECAUSE_H
#define PEN_BECAUSE_H

#include "gen/planner/planner.h"

/* A sentence that begins "first because". Compares the first candidate with the next slower one; if
 * it is no pipeline, with the best that is one. All candidates that were found are in `result`. */
const char *pen_because(const struct pen_planner *planner, const struct pen_plan_result *result);

#endif
