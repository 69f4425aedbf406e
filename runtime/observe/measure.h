/* measure.h: train --measure FILE: what the actions of each stage cost on this machine, for
 * penstock-gen --costs.
 *
 * Every rank notes when each of its rows ran, into a ring that it shares with the parent; when all
 * ranks have left, the parent looks at the shortest quarter of the steps: what disturbed the others
 * (the first touch of memory, another program) is no cost of the plan's. Over these it takes means,
 * in milliseconds:
 *
 *   forward, backward_input, backward_weight, backward   of F, I, W, B, with the copy of the
 * message that follows: what the simulator counts as the action send      from the end of that copy
 * to the end of a wait that was blocked for it: what it counts as latency step      from the start
 * of the first to the end of the last action over all ranks: what it predicts
 */
#ifndef PEN_MEASURE_H
#define PEN_MEASURE_H

#include "runtime/plan/plan.h"
#include "runtime/observe/trace.h"

struct pen_measure {
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const char *path;
  int descriptor;
  struct pen_trace *rings; /* [rank_count], shared between processes */
};

/* The parent, before there are ranks: opens FILE, which keeps what it holds until
 * pen_measure_write(), and makes rings for as many of `steps` steps as fit. Fails (73). Allocates.
 */
void pen_measure_open(struct pen_measure *measure, const struct pen_plan *plan,
                      const struct pen_profile *profile, const char *path, uint64_t steps);

/* The parent, when all ranks have left: writes FILE; what was not trained to its end (`whole`
 * false) is not measured, and a file that was not there before is taken away. Fails (74). */
void pen_measure_write(struct pen_measure *measure, bool whole);

#endif
