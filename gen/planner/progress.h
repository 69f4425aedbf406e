/* progress.h: shows on a terminal how far the planner is. */
#ifndef PEN_PLANNER_PROGRESS_H
#define PEN_PLANNER_PROGRESS_H

#include "gen/planner/planner.h"

/* Writes a bar to standard error if it is a terminal, at most ten times a second. */
void pen_plan_progress_show(const struct pen_planner *planner, const char *what, double share,
                            uint64_t candidates, uint64_t evaluated);

/* Removes the bar. */
void pen_plan_progress_end(void);

#endif
