/* first_step.h: shows that a run is alive before its first step has ended. */
#ifndef PEN_FIRST_STEP_H
#define PEN_FIRST_STEP_H

#include <stdint.h>

#include "runtime/rank/run.h"

struct pen_first_step {
  uint64_t start_ns, shown_ns; /* 0: not set */
};

/* Prints a line every ten seconds until the first step has ended, on rank 0's host: what a rank
 * that is behind does, or which part of the step is done. Call it often, while the ranks run. With
 * --quiet and --watch it prints nothing. */
void pen_first_step_show(struct pen_first_step *shown, const struct pen_run *run);

#endif
