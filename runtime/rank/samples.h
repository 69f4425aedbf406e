/* samples.h: train --sample-every N: texts by the weights that are trained, by the binary's plans
 * for generation over the same memory.
 *
 * As with an evaluation (evaluate.h) a barrier is before and after, and weights, gradients and
 * moments are not changed. Each time the samples begin anew, with the same draws. */
#ifndef PEN_SAMPLES_H
#define PEN_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rank/rank.h"

/* Whether samples are made after step `step` of the optimizer, the run's last or not. */
bool pen_samples(const struct pen_run *run, uint64_t step, bool last);

/* Every rank, after its own end of that step, when its steps are done and rank 0 has logged them:
 * makes the samples, and rank 0 logs them, unless the run is to end before they have. False: the
 * run was aborted. */
bool pen_make_samples(struct pen_rank *rank, uint64_t step);

#endif
