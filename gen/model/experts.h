/* experts.h: the functions with which a family builds a layer of experts (see builder.h). */
#ifndef PEN_MODEL_EXPERTS_H
#define PEN_MODEL_EXPERTS_H

#include "gen/model/graph.h"

/* A matrix (rows, columns) of each of model.experts experts, one weight; the name has a `*` where
 * that of an expert's has its number. Its initial values are normal. */
uint32_t pen_graph_stack(struct pen_graph *graph, const char *name, int64_t rows, int64_t columns,
                         double deviation);

/* What is added to the scores of experts where they are chosen, (experts). It begins with zeros.
 * Without model.bias_update it is frozen; with it its gradient is how often each expert is chosen,
 * which UPDATE reads (runtime/plan/optimizer.def, BALANCE). */
uint32_t pen_graph_router_bias(struct pen_graph *graph, const char *name);

/* With model.aux_scope = "step" how often each expert was chosen in the last step that was not
 * skipped, (experts), which the balancing loss reads; PEN_NONE without. It begins with zeros. What
 * files have of it is its moment, ROUTER.choices. */
uint32_t pen_graph_router_counts(struct pen_graph *graph, const char *router);

/* The weights of a layer: of its router (experts, hidden), and (experts) and (experts), which may
 * be PEN_NONE; of all experts, stacks of (ffn, hidden), (ffn, hidden), (hidden, ffn). */
struct pen_expert_weights {
  uint32_t router, bias, counts, gate, up, down;
};

/* Routes the rows of x (rows, hidden), and adds to the
 * addend the sums of what the experts of a row make of it, slice by slice (gen/topology/experts.h).
 * The probability of an expert is applied before its last product. */
uint32_t pen_op_experts(struct pen_graph *graph, const char *name, uint32_t x,
                        const struct pen_expert_weights *weights, uint32_t addend);

#endif
