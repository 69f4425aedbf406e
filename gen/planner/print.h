/* print.h: the result as table, JSON or chart. */
#ifndef PEN_PLAN_PRINT_H
#define PEN_PLAN_PRINT_H

#include "gen/planner/planner.h"

/* By --print. */
void pen_plan_print(FILE *out, const struct pen_planner *planner,
                    const struct pen_plan_result *result);

/* The kinds of --print. */
void pen_plan_print_table(FILE *out, const struct pen_planner *planner,
                          const struct pen_plan_result *result);
void pen_plan_print_json(FILE *out, const struct pen_planner *planner,
                         const struct pen_plan_result *result);
void pen_plan_print_svg(FILE *out, const struct pen_planner *planner,
                        const struct pen_plan_result *result);

/* Tokens of a step over all replicas a second; 0: the costs have no unit of time. */
double pen_tokens_per_second(const struct pen_planner *planner,
                             const struct pen_plan_result *result, double makespan);

#endif
