/* slow.h: names the ranks and links that are slower than their plan, relative to the others.
 *
 * In: the timing that each rank publishes of each step (runtime/comm/step_timing.h), and the plan's
 * prediction of the ranks' work. Out: an event and a line on standard error for each, and the
 * ranks' slow_kind and slow_ratio for the dashboard and the metrics. Events go to the log with
 * several hosts or --restarts, else to standard error:
 *
 *     {"event":"slow","kind":"compute","rank":3,"host":"b","peer":null,"ratio":0.62,"since_step":81}
 *
 *   compute   the rank's time for a step, without waits, over the plan's, relative to the median of
 *             the ranks and to its own in earlier steps: a plan whose costs are not measured
 *             predicts unlike ranks badly
 *   data      the time to read tokens, beyond that of earlier steps, as a share of the rank's work
 *   link      the time of a sender's messages to a rank on another host over that of earlier steps,
 *             or, for one that is slow from the start, over that of other links (link_watch.h); the
 *             two hosts' clocks may differ and drift apart
 *
 * drift.h says when one of these is too high. Short steps are judged together, as many as a rank
 * computes for 0.05 s. Steps of which a time is missing are left out. */
#ifndef PEN_SLOW_H
#define PEN_SLOW_H

#include "runtime/rank/run.h"

struct pen_slow;

/* For a run on several ranks on CPUs; else null. Allocates. */
struct pen_slow *pen_slow_open(struct pen_run *run);

/* Judges the steps of training that have ended since the last call. Null is allowed, as below. */
void pen_slow_judge(struct pen_slow *slow);

/* How many ranks are slow now. */
uint32_t pen_slow_count(const struct pen_slow *slow);

void pen_slow_close(struct pen_slow *slow);

#endif
