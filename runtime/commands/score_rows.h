/* score_rows.h: what the ranks of the last stage find in a step of score: -ln p of each target.
 *
 * The results of a step are in memory that all local ranks share (struct pen_results), of a replica
 * after the other, those of two steps alternately. With --logits each row's logits go to
 * pen_score_logits_add(). */
#ifndef PEN_SCORE_ROWS_H
#define PEN_SCORE_ROWS_H

#include "runtime/exec/exec.h"
#include "runtime/rank/run.h"

/* In the parent: sets run->results, of which `reader` is the rank that reads all. */
void pen_score_rows_open(struct pen_run *run, uint32_t reader);

/* In a rank of the last stage, before the seal: hooks the op of the loss. */
void pen_score_rows_hook(struct pen_vm *vm);

/* The targets of a microbatch. */
size_t pen_score_microbatch_rows(const struct pen_vm *vm);

/* After the rank's end of a step: takes from its device what it has found, if it has one. */
void pen_score_rows_fetch(const struct pen_vm *vm);

/* The results of the current step: [windows of the step][sequence], of targets that are not
 * ignored; the others' are undefined. A rank reads what another has found after a barrier. */
double *pen_score_rows_found(const struct pen_vm *vm);

#endif
