/* outputs.h: the values that model.outputs names, which the ranks of the last stage take from their
 * arenas after a step: for eval --outputs and for a library. */
#ifndef PEN_OUTPUTS_H
#define PEN_OUTPUTS_H

#include "runtime/exec/exec.h"
#include "runtime/rank/run.h"

/* Bytes that an output has of one sample. */
uint64_t pen_output_sample_bytes(const struct pen_plan *plan, const struct pen_output *output);

/* How many of the replicas' processes that have outputs this command has. */
uint32_t pen_output_process_count(const struct pen_run *run);

/* Takes bytes of an output; `at` is the place of the first, if the samples of the step follow each
 * other in the order of the cursor (docs/contracts.md section 9). */
typedef void pen_output_take(const struct pen_vm *vm, uint32_t output, uint64_t at,
                             const void *from, uint64_t bytes);

/* In a rank, after its end of a step: gives all that it has of that step, in pieces. */
void pen_outputs_give(const struct pen_vm *vm, pen_output_take *take);

#endif
