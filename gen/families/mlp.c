/* mlp.c: the family for tests (design.md section 8): layer n is w3(gelu(w2(1.05 w1(x))) + y).
 *
 * x enters the first stage, y every stage; both are counter-based normals. The loss is the sum of the last output. */
#include "gen/families/families.h"

static uint32_t weight(struct pen_graph *graph, uint32_t layer, const char *name) {
  int64_t hidden = graph->topology->model_hidden;
  return pen_graph_weight(graph, pen_text("layers.%u.%s.weight", layer, name), hidden, hidden, PEN_INITIAL_NORMAL, 0.25);
}

static uint32_t layer(struct pen_graph *graph, uint32_t index, uint32_t x, uint32_t y) {
  graph->prefix = pen_text("layers.%u.", index);
  uint32_t h = op_linear(graph, "h1", x, weight(graph, index, "w1"), PEN_NONE);
  h = op_scale(graph, "h1_scaled", h, 1.05);
  h = op_linear(graph, "h2", h, weight(graph, index, "w2"), PEN_NONE);
  h = op_gelu(graph, "gelu", h);
  h = op_add(graph, "h2_y", h, y);
  return op_linear(graph, "h3", h, weight(graph, index, "w3"), PEN_NONE);
}

void pen_family_mlp(struct pen_graph *graph) {
  int64_t hidden = graph->topology->model_hidden;
  bool first = graph->stage == 0, last = graph->stage + 1 == graph->stage_count;
  uint32_t x = first ? op_normal(graph, "x", hidden, 0) : pen_graph_input(graph, hidden);
  uint32_t y = op_normal(graph, "y", hidden, 1);
  for (uint32_t n = graph->span.first_layer; n < graph->span.past_last_layer; n++) x = layer(graph, n, x, y);
  graph->prefix = "";
  if (last)
    op_sum_loss(graph, x);
  else
    pen_graph_output(graph, x);
}

char *pen_config_mlp(const struct pen_topology *topology) {
  return pen_text("{\"model_type\": \"penstock_mlp\", \"hidden_size\": %lld, \"num_hidden_layers\": %lld}\n",
                  (long long)topology->model_hidden, (long long)topology->model_layers);
}
