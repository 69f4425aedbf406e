/* fused_loss.h: a loss that the backward computes (ops.def, PEN_FUSED_LOSS). */
#ifndef PEN_FUSED_LOSS_H
#define PEN_FUSED_LOSS_H

#include "gen/model/recompute.h"

/* Whether the stage ends with such a loss. */
bool pen_loss_is_fused(const struct pen_graph *graph);

/* The forward ops, with a separate gradient value for the loss, which no other program writes. */
struct pen_recomputed pen_fused_loss_copy(struct pen_graph *graph, const char *suffix);

/* Moves the loss, the last of the forward ops or of their copies, to the start of I or B. */
void pen_fused_loss_insert(const struct pen_graph *graph, struct pen_recomputed *forwards,
                           struct pen_op_list *program);

/* Merges the loss and its W op in B into one op. */
void pen_fused_loss_merge(struct pen_op_list *program);

/* Floating-point operations that I and W both run, and B once: the logits of such a loss. */
double pen_shared_flops(const struct pen_graph *graph);

#endif
