/* progress.h: shows how far the planner is. */
#ifndef PEN_PLANNER_PROGRESS_H
#define PEN_PLANNER_PROGRESS_H

#include "gen/planner/planner.h"

/* Writes to standard error: a bar if that is a terminal, at most ten times a second; else a line
 * after a second, and then every five, later every tenth of the time until then. */
void pen_plan_progress_show(const struct pen_planner *planner, const char *what, double share,
                            uint64_t candidates, uint64_t evaluated);

/* Removes the bar. */
void pen_plan_progress_end(void);

#endif
