/* fused_loss.h: a loss that the backward makes (ops.def, PEN_FUSED_LOSS). */
#ifndef PEN_FUSED_LOSS_H
#define PEN_FUSED_LOSS_H

#include "gen/model/recompute.h"

/* Whether the model ends, in this stage, in such a loss. */
bool pen_loss_is_fused(const struct pen_graph *graph);

/* The forward ops, the loss with a gradient of its own, which no other program makes. */
struct pen_recomputed pen_fused_loss_copy(struct pen_graph *graph, const char *suffix);

/* Puts the loss, the last of the forward ops or of their copies, at the head of I or B, and takes
 * it off the copies. */
void pen_fused_loss_insert(const struct pen_graph *graph, struct pen_recomputed *forwards,
                           struct pen_op_list *program);

/* Makes one op of the loss and of its W op, where both stand in B. */
void pen_fused_loss_merge(struct pen_op_list *program);

/* Floating-point operations that I and W both run, and B once: the logits of such a loss. */
double pen_shared_flops(const struct pen_graph *graph);

#endif
