/* dashboard.h: train --watch: a live view of all ranks, which the parent draws from their state in
 * shared memory. */
#ifndef PEN_DASHBOARD_H
#define PEN_DASHBOARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/rank/run.h"

struct pen_dashboard {
  bool terminal;
  uint32_t lines;    /* drawn last time, which the next drawing overwrites */
  uint64_t drawn_ns; /* when */
};

void pen_dashboard_open(struct pen_dashboard *display);

/* Draws if enough time has passed; `last`: only the summary, when all ranks have exited. `count`
 * ranks, which are the processes `pids`. */
void pen_dashboard_draw(struct pen_dashboard *display, const struct pen_run *run, const pid_t *pids,
                        uint32_t count, bool last);

struct pen_first_step {
  uint64_t start_ns, shown_ns; /* 0: not set */
};

/* Prints a line every ten seconds until the first step has ended, on rank 0's host: what a rank
 * that is behind does, or which part of the step is done. Call it often, while the ranks run. With
 * --quiet and --watch it prints nothing. */
void pen_first_step_show(struct pen_first_step *shown, const struct pen_run *run);

#endif
