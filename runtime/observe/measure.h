/* measure.h: train --measure FILE: what the actions of each stage cost on this machine, for
 * penstock-gen --costs.
 *
 * Each rank records when each of its actions ran, in a ring that it shares with the parent. After
 * all ranks have exited, the parent takes means over the shortest quarter of the steps, since the
 * first touch of memory or another program may have slowed the others; in milliseconds:
 *
 *   forward, backward_input, backward_weight, backward
 *            of F, I, W, B, with the copy of the message that follows: the simulator's action
 *   send     from the end of that copy to the end of a wait that was blocked for it: its latency
 *   step     from the start of the first to the end of the last action of all ranks: its prediction
 *
 * Of tensor ranks the first records; what it exchanges with the others is part of its actions. */
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
  bool alone;              /* the command measure: each process has its own rings, and exchanges
                              nothing with the other tensor ranks */
};

/* In the parent, before the ranks start: opens FILE, whose contents remain until
 * pen_measure_write(), and makes rings for as many of `steps` steps as fit. Fails (73). Allocates.
 */
void pen_measure_open(struct pen_measure *measure, const struct pen_plan *plan,
                      const struct pen_profile *profile, const char *path, uint64_t steps);

/* In the parent, after all ranks have exited: writes FILE. If the run did not complete (`whole`
 * false), writes nothing, and removes a file that pen_measure_open() created. Fails (74). */
void pen_measure_write(struct pen_measure *measure, bool whole);

/* Of files of costs: the parameters of a stage that its first tensor rank has. */
uint64_t pen_stage_parameters(const struct pen_plan *plan, uint32_t stage);

#endif
