/* score_rows.h: what the ranks of the last stage find in a step of score, or of a library's
 * evaluation: -ln p of each target.
 *
 * The results of a step are in memory that all local ranks share, of a replica after the other,
 * those of two steps alternately. With --logits each row's logits go to
 * pen_score_logits_add(). */
#ifndef PEN_SCORE_ROWS_H
#define PEN_SCORE_ROWS_H

#include "runtime/exec/exec.h"
#include "runtime/rank/run.h"

/* The bytes of the results of two steps of a profile. Fails (71) if they are too many. */
uint64_t pen_score_rows_bytes(const struct pen_plan *plan, const struct pen_profile *profile);

/* In the parent: they are there. */
void pen_score_rows_open(const struct pen_plan *plan, const struct pen_profile *profile,
                         void *results);

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
