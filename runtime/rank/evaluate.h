/* evaluate.h: train --eval-every N: the loss on held-out data while training, by the binary's plans
 * for evaluation over the same memory.
 *
 * Between a step of training and one of evaluation stands a barrier, as plan.h wants it; weights,
 * gradients and moments are not touched. Each evaluation begins at the first window of its file. */
#ifndef PEN_EVALUATE_H
#define PEN_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/observe/step_log.h"
#include "runtime/rank/run.h"
#include "runtime/exec/vm.h"

/* Whether step `step` of the optimizer, the run's last or not, is evaluated. */
bool pen_evaluates(const struct pen_run *run, uint64_t step, bool last);

/* Every rank, after its own end of that step, when all is done and rank 0 has told all steps:
 * evaluates by vms[shapes], and rank 0 tells the result. *board_step counts the steps of the run,
 * of training and evaluation; *vm is what runs, meanwhile, for messages. False: the run was
 * aborted. */
bool pen_evaluate(const struct pen_run *run, struct pen_transport *end, struct pen_log *log,
                  uint64_t step, struct pen_vm *vms, uint64_t *board_step, struct pen_vm **vm);

#endif
