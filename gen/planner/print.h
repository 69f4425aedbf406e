/* print.h: the result as --print says. */
#ifndef PEN_PLAN_PRINT_H
#define PEN_PLAN_PRINT_H

#include <stdio.h>

#include "gen/planner/planner.h"

void pen_plan_print(FILE *out, const struct pen_planner *planner,
                    const struct pen_plan_result *result);

#endif
