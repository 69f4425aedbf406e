/* evaluate.h: train --eval-every N: the loss on held-out data while training, by the binary's plans
 * for evaluation over the same memory.
 *
 * Between a step of training and one of evaluation is a barrier, as plan.h requires; weights,
 * gradients and moments are not changed. Each evaluation begins at the first window of its file. */
#ifndef PEN_EVALUATE_H
#define PEN_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rank/rank.h"

/* Whether step `step` of the optimizer, the run's last or not, is evaluated. */
bool pen_evaluates(const struct pen_run *run, uint64_t step, bool last);

/* Every rank, after its own end of that step, when its steps are done and rank 0 has logged them:
 * evaluates, and rank 0 logs the result. False: the run was aborted. */
bool pen_evaluate(struct pen_rank *rank, uint64_t step);

/* Steps between two steps of training, of an evaluation or of samples: at most so many. Their log
 * prints nothing: it sums the loss. */
void pen_between_start(struct pen_rank *rank, uint64_t steps);

/* One of them, by rank->vm. As in training, rank 0 decides before it sends anything whether it is
 * the last: since all are made (`counted`), or because the run is to end. A host that runs ahead of
 * its device waits until rank 0 has begun the step, and so decided. False: the run was aborted. */
bool pen_between_step(struct pen_rank *rank, uint64_t index, uint64_t cursor, bool counted);

/* Counts it; whether it was the last. */
bool pen_between_stops(struct pen_rank *rank);

/* Ends the last of so many, and reads the statistics, of those that were interrupted, too: their
 * memory must be free again. False: the run was aborted. */
bool pen_between_end(struct pen_rank *rank, uint64_t count);

#endif
