/* step_inputs.h: where a step's inputs come from: windows of a token file, or counter-based normals
 * (contracts.md §9). A plain file, in llm.c's format, a NumPy array or Megatron-LM's, is
 * one stream of tokens, cut every `sequence`; a packed file (packed.h) has windows of its own,
 * which may be shorter: then padding follows.
 *
 * Windows are counted by a cursor: row i of microbatch j, counted on over all replicas, reads
 * the window at position cursor + j*microbatch + i (window_order.h); without a file they are
 * counted without end. */
#ifndef PEN_STEP_INPUTS_H
#define PEN_STEP_INPUTS_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "runtime/data/token_file.h"

/* Readies a step that begins at window `cursor` and reads `count` windows over all replicas. */
void pen_data_prepare_step(struct pen_data *data, uint64_t cursor, uint64_t count);

/* The function of a data op; its call's `prepared` is the struct pen_data. Null for any other op.
 */
pen_kernel *pen_data_op(unsigned kind, unsigned dtype);

#endif
