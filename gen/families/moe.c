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

static uint32_t matrix(struct pen_graph *graph, uint32_t n, const char *name, int64_t rows,
                       int64_t columns, double deviation) {
  return pen_graph_weight(graph, name_of(n, name), rows, columns, PEN_INITIAL_NORMAL, deviation);
}

/* The SwiGLU that all rows have, as wide as so many experts, plus the addend. */
static uint32_t shared_block(struct pen_graph *graph, uint32_t n, uint32_t x,
                             const struct pen_moe_names *names, double last, uint32_t addend) {
  const struct pen_topology *t = graph->topology;
  const int64_t hidden = t->model_hidden, width = t->model_shared_experts * t->model_moe_ffn;
  if (t->model_shared_experts <= 0) return addend;
  const uint32_t gate =
      pen_op_linear(graph, "shared_gate", x,
                    matrix(graph, n, names->shared_gate, width, hidden, DEVIATION), PEN_NONE);
  const uint32_t up =
      pen_op_linear(graph, "shared_up", x,
                    matrix(graph, n, names->shared_up, width, hidden, DEVIATION), PEN_NONE);
  const uint32_t swiglu = pen_op_elementwise(graph, PEN_OP_SWIGLU, "shared_swiglu", gate, up);
  return pen_op_linear(graph, "shared", swiglu,
                       matrix(graph, n, names->shared_down, hidden, width, last), addend);
}

bool pen_moe_is_dense(const struct pen_topology *topology, uint32_t layer) {
  return !pen_layer_has_experts(topology, layer);
}

uint32_t pen_moe_block(struct pen_graph *graph, uint32_t n, uint32_t x,
                       const struct pen_moe_names *names) {
  const struct pen_topology *t = graph->topology;
  const double last = DEVIATION / sqrt(2.0 * (double)t->model_layers);
  const uint32_t norm =
      pen_rotary_layer_norm(graph, n, "mlp_norm", x, "post_attention_layernorm", 0);
  const uint32_t router =
      matrix(graph, n, names->router, t->model_experts, t->model_hidden, DEVIATION);
  const struct pen_expert_weights weights = {
      router,
      names->bias ? pen_graph_router_bias(graph, pen_text("model.layers.%u.%s", n, names->bias))
                  : PEN_NONE,
      pen_graph_router_counts(graph, pen_text("model.layers.%u.%s", n, names->router)),
      pen_graph_stack(graph, name_of(n, names->gate), t->model_moe_ffn, t->model_hidden, DEVIATION),
      pen_graph_stack(graph, name_of(n, names->up), t->model_moe_ffn, t->model_hidden, DEVIATION),
      pen_graph_stack(graph, name_of(n, names->down), t->model_hidden, t->model_moe_ffn, last)};
  const uint32_t addend = shared_block(graph, n, norm, names, last, x);
  return pen_op_experts(graph, "output", norm, &weights, addend);
}
