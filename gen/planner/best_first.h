/* best_first.h: finds the candidates with the shortest steps that fit. */
#ifndef PEN_BEST_FIRST_H
#define PEN_BEST_FIRST_H

#include "gen/planner/planner.h"

/* Evaluates candidates until the best `wanted` of those that fit are known, or with --exhaustive
 * all. Fails (78) if none fits. */
struct pen_plan_result pen_best_first(const struct pen_planner *planner, size_t wanted);

#endif
