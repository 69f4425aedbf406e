/* refine.h: the best candidates again, with a better order. */
#ifndef PEN_REFINE_H
#define PEN_REFINE_H

#include "gen/planner/planner.h"

/* Searches for the orders of the first `count` candidates, within the limit of memory. Of those
 * that differ only in what that chooses, the first alone is one. A candidate that becomes faster
 * keeps its order; then all are sorted again. */
void pen_refine(const struct pen_planner *planner, struct pen_plan_result *result, size_t count);

/* Sorts candidates: by time, those of equal time by memory, then in the order of the axes; and
 * finds the reasons. */
void pen_sort_candidates(struct pen_plan_result *result);

#endif
