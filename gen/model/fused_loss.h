/* late_loss.h: a loss that the backward makes (ops.def, PEN_LATE_LOSS). */
#ifndef PEN_LATE_LOSS_H
#define PEN_LATE_LOSS_H

#include "gen/model/recompute.h"

/* Whether the model ends, in this stage, in such a loss. */
bool pen_loss_is_late(const struct pen_graph *graph);

/* The forward ops, the loss with a gradient of its own, which no other program makes. */
struct pen_again pen_late_loss_copy(struct pen_graph *graph, const char *suffix);

/* Puts the loss, the last of the forward ops or of their copies, at the head of I or B, and takes it off the copies. */
void pen_late_loss_insert(const struct pen_graph *graph, struct pen_again *forwards, struct pen_op_list *program);

/* Makes one op of the loss and of its W op, where both stand in B. */
void pen_late_loss_join(struct pen_op_list *program);

#endif
