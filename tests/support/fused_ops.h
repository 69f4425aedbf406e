/* fused_ops.h: the ops of fused products, and attention over a cache (ops.def), against the ops
 * that they replace. */
#ifndef PEN_FUSED_OPS_H
#define PEN_FUSED_OPS_H

#include "tests/support/kernels_signature.h"

/* Runs an op whose operands are all in one block of memory, which then has its results. */
typedef void run_in_block(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call,
                          void *block, size_t bytes);

/* Each has the bits of LINEAR, of gated units, ROPE and ATTENTION, and of their gradients, over
 * tensors of their own; a product those of LINEAR over one weight. */
void check_fused_ops(enum pen_dtype dtype, run_in_block *run);

/* Attention over a cache, of separate and of fused products, by chunks and token by token, has the
 * bits of ATTENTION over whole sequences. */
void check_cached_ops(enum pen_dtype dtype, run_in_block *run);

#endif
