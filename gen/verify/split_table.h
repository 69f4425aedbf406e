/* split_table.h: the table of weights that are divided into splits. */
#ifndef PEN_SPLIT_TABLE_H
#define PEN_SPLIT_TABLE_H

#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

/* Into how many splits the split weights of a plan are split; 1: none is. */
uint32_t pen_split_count(const struct pen_plan *plan);

/* The splits of each tensor are in the table once, in their order, and hold each of its elements
 * once. */
bool pen_check_split_table(const struct pen_plan *plan, struct pen_problem *problem);

#endif
