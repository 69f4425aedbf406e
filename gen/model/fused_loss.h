/* fused_loss.h: a loss that the backward computes (ops.def, PEN_FUSED_LOSS). */
#ifndef PEN_FUSED_LOSS_H
#define PEN_FUSED_LOSS_H

#include "gen/model/graph.h"

/* Whether the stage ends with such a loss. */
bool pen_loss_is_fused(const struct pen_graph *graph);

/* Merges each such loss, or I op of PEN_FUSED_GRADIENT, and its W op in B into one op. */
void pen_fused_loss_merge(struct pen_op_list *program);

/* Floating-point operations that I and W both run, and B once: the logits of such ops. */
double pen_shared_flops(const struct pen_graph *graph);

#endif
