/* place.h: where the values of a graph lie in the tensor group (struct pen_value, `place`).
 *
 * A weight that is split is so along one of its dimensions. What an op gives follows from the
 * shapes of its row in kernels/ops.def: results that have the dim are split along it, too, and
 * others are a part of a sum (or of a maximum, or of a choice) over the splits. */
#ifndef PEN_PLACE_H
#define PEN_PLACE_H

#include "gen/model/graph.h"

/* The split whose op this is: the first of its inputs that is split has it. PEN_NONE: it is an op
 * on whole values, or on parts of sums. */
uint32_t pen_split_of_op(const struct pen_graph *graph, const struct pen_op *op);

/* Whether operand k of an op of a split lies whole: the ops of all splits read it, and each gives a
 * part of its gradient. */
bool pen_op_shares(const struct pen_graph *graph, const struct pen_op *op, uint32_t k);

/* Whether output k of an op, whose inputs are set, is a part of a sum. */
bool pen_op_gives_partial(const struct pen_graph *graph, const struct pen_op *op, uint32_t k);

/* Says where output k lies. */
void pen_place_output(struct pen_graph *graph, const struct pen_op *op, uint32_t k);

/* Says that a value lies where another does. */
void pen_place_as(struct pen_graph *graph, uint32_t value, uint32_t other);

#endif
