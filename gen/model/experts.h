/* experts.h: the functions with which a family builds a layer of experts (see builder.h). */
#ifndef PEN_MODEL_EXPERTS_H
#define PEN_MODEL_EXPERTS_H

#include "gen/model/graph.h"

/* A matrix (rows, columns) of each of model.experts experts, one weight; the name has a `*` where
 * that of an expert's has its number. Its initial values are normal. */
uint32_t pen_graph_stack(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                         double deviation);

/* The matrices of all experts of a layer: stacks of (ffn, hidden), (ffn, hidden), (hidden, ffn). */
struct pen_expert_weights {
  uint32_t gate, up, down;
};

/* Routes the rows of x (rows, hidden) by the router's weight (experts, hidden), and adds to the
 * addend the sums of what the experts of a row make of it, slice by slice (gen/topology/experts.h).
 * The probability of an expert is applied before its last product. */
uint32_t pen_op_experts(struct pen_graph *graph, const char *name, uint32_t x, uint32_t router,
                        const struct pen_expert_weights *weights, uint32_t addend);

#endif
