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

#endif
