/* watch.h: train --watch: a live picture of all ranks, drawn by the parent from what they tell in
 * shared memory. */
#ifndef PEN_DASHBOARD_H
#define PEN_DASHBOARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/rank/run.h"

struct pen_dashboard {
  bool terminal;
  uint32_t lines;    /* drawn last time, which the next drawing goes back over */
  uint64_t drawn_ns; /* when */
};

void pen_dashboard_open(struct pen_dashboard *display);

/* Draws if it is time again; `last`: when all ranks have left, what came of it alone. `count`
 * ranks, which are the processes `pids`. */
void pen_dashboard_draw(struct pen_dashboard *display, const struct pen_run *run, const pid_t *pids,
                        uint32_t count, bool last);

#endif
