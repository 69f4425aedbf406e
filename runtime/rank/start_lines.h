/* start_lines.h: what a run says when its ranks have started. */
#ifndef PEN_START_LINES_H
#define PEN_START_LINES_H

#include "runtime/rank/run.h"

/* Of a run that trains, unless it starts again: warns, with --quiet, too, if it saves nothing or
 * only at its end, and says the learning rate of steps after optimizer.steps. Rank 0 calls it. */
void pen_start_lines_print(const struct pen_run *run);

#endif
