/* internal.h: the kinds of --print. */
#ifndef PEN_PLANNER_INTERNAL_H
#define PEN_PLANNER_INTERNAL_H

#include <stdio.h>

#include "gen/planner/planner.h"

void pen_plan_print_table(FILE *out, const struct pen_planner *planner,
                          const struct pen_plan_result *result);
void pen_plan_print_json(FILE *out, const struct pen_planner *planner,
                         const struct pen_plan_result *result);
void pen_plan_print_svg(FILE *out, const struct pen_planner *planner,
                        const struct pen_plan_result *result);

/* Tokens of a step over all replicas a second; 0: the costs have no unit of time. */
double pen_tokens_per_second(const struct pen_planner *planner,
                             const struct pen_plan_result *result, double step);

/* With how many digits the steps of neighbours differ, unless they count as equal. */
int pen_step_digits(const struct pen_plan_result *result);

/* The value of an axis in the topology of a candidate, as refinement may have changed it; NULL: the
 * axis does not apply. */
const char *pen_candidate_text(const struct pen_planner *planner,
                               const struct pen_plan_candidate *candidate, enum pen_axis axis);

#endif
