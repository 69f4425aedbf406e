/* append.h: how the files of this folder append ops and weights to a graph; no family calls them.
 */
#ifndef PEN_APPEND_H
#define PEN_APPEND_H

#include "gen/model/graph.h"

/* The name of a value inside the current layer, and of the current split. */
const char *pen_local_name(struct pen_graph *graph, const char *name);

/* Appends an op and adds a value for each output that is not optional, with its size by the
 * signature and named after `name` (further outputs: "name.output"). `input` holds the operands
 * before the outputs. Returns the op. */
struct pen_op *pen_append_with_outputs(struct pen_graph *graph, struct pen_op_list *list, int kind,
                                       const char *name, const uint32_t *input, const int64_t *dim,
                                       size_t dim_count, uint8_t role);

/* Appends an op to the forward list; returns its first output, as most ops do. */
uint32_t pen_append_forward(struct pen_graph *graph, int kind, const char *name,
                            const uint32_t *input, const int64_t *dim, size_t dim_count);

/* Whether model.frozen names the tensor. */
bool pen_weight_is_frozen(const struct pen_topology *topology, const char *name);

/* Adds a weight, without a value: of another tensor rank. Returns its index. */
uint32_t pen_add_weight_row(struct pen_graph *graph, const struct pen_weight *shape);

/* Adds a weight's value and, if it is trained, its gradient. */
uint32_t pen_add_weight(struct pen_graph *graph, const struct pen_weight *shape,
                        const char *gradient_name);

/* The value of the weight of that name that the current block has added; PEN_NONE: none. The ops of
 * all splits are in one block. */
uint32_t pen_weight_of_block(const struct pen_graph *graph, const char *name);

/* Adds the gradient of a loss op's input, which the op computes as its last operand, in training.
 */
void pen_append_loss_gradient(struct pen_graph *graph, struct pen_op *op, uint32_t x);

/* Output `n` of the data op whose output 0 is `first`. */
uint32_t pen_output_beside(const struct pen_graph *graph, uint32_t first, int n);

/* The weight of one target in the step's loss. */
uint32_t pen_share_of(const struct pen_graph *graph, uint32_t targets);

#endif
