/* piece_table.h: the table of weights that are split into pieces. */
#ifndef PEN_PIECE_TABLE_H
#define PEN_PIECE_TABLE_H

#include "gen/verify/problem.h"
#include "runtime/plan/plan.h"

/* Into how many pieces the split weights of a plan are split; 1: none is. */
uint32_t pen_piece_count(const struct pen_plan *plan);

/* The pieces of each tensor are in the table once, in their order, and hold each of its elements
 * once. */
bool pen_check_piece_table(const struct pen_plan *plan, struct pen_problem *problem);

#endif
