/* reason.h: where the time of a step goes, why a candidate is not the first, and why the
 * first is. */
#ifndef PEN_REASON_H
#define PEN_REASON_H

#include "gen/planner/planner.h"
#include "gen/timing/step_time.h"
#include "gen/timing/timing.h"

struct pen_time_parts pen_time_parts_of(const struct pen_partition *partition,
                                        const struct pen_timing *timing,
                                        const struct pen_step_time *step);

/* "recomputation", "collectives", "imbalance" or "bubble": the part that exceeds the first
 * candidate's most; "memory": none does, so it only needs more memory. */
const char *pen_reason_of(const struct pen_plan_candidate *first,
                          const struct pen_plan_candidate *candidate);

/* A sentence that begins "first because". Compares the first candidate with the next slower one; if
 * it is no pipeline, with the best that is one. All candidates that were found are in `result`. */
const char *pen_because(const struct pen_planner *planner, const struct pen_plan_result *result);

#endif
