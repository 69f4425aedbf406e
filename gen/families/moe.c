/* moe.c: mixtures of experts (Shazeer et al. 2017): each row goes to the experts_per_token experts
 * that a router scores highest; each is a SwiGLU. No row is dropped. */
#include "gen/families/moe.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/model/builder.h"
#include "gen/model/experts.h"
#include "gen/topology/experts.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#define DEVIATION 0.02

static const char *name_of(uint32_t n, const char *name) {
  return pen_text("model.layers.%u.%s.weight", n, name);
}

uint32_t pen_moe_block(struct pen_graph *graph, uint32_t n, uint32_t x,
                       const struct pen_moe_names *names) {
  const struct pen_topology *t = graph->topology;
  if (!pen_layer_has_experts(t, n)) return pen_rotary_mlp(graph, n, x);
  const double last = DEVIATION / sqrt(2.0 * (double)t->model_layers);
  const uint32_t norm =
      pen_rotary_layer_norm(graph, n, "mlp_norm", x, "post_attention_layernorm", 0);
  const uint32_t router = pen_graph_weight(graph, name_of(n, names->router), t->model_experts,
                                           t->model_hidden, PEN_INITIAL_NORMAL, DEVIATION);
  const struct pen_expert_weights weights = {
      pen_graph_stack(graph, name_of(n, names->gate), t->model_moe_ffn, t->model_hidden, DEVIATION),
      pen_graph_stack(graph, name_of(n, names->up), t->model_moe_ffn, t->model_hidden, DEVIATION),
      pen_graph_stack(graph, name_of(n, names->down), t->model_hidden, t->model_moe_ffn, last)};
  return pen_op_experts(graph, "output", norm, router, &weights, x);
}
