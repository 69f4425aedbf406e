/* mlp.c: the family for tests (docs/contracts.md section 8). Layer n: w3(gelu(w2(1.05 w1(x))) + y).
 *
 * x is an input of the first stage, y of every stage; both are counter-based normal numbers. The
 * loss is the sum of the last output. A layer is three blocks, one for each matrix. */
#include "gen/families/families.h"
#include "gen/model/builder.h"
#include "gen/base/arena.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static uint32_t make_x(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  return pen_op_normal(graph, "x", graph->topology->model_hidden, 0);
}
static uint32_t make_y(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  return pen_op_normal(graph, "y", graph->topology->model_hidden, 1);
}

static const struct pen_declared x_input = {
    "x", "batch sequence hidden", 0, PEN_OF_MODEL, PEN_TO_FIRST, make_x, NULL};
static const struct pen_declared y_input = {
    "y", "batch sequence hidden", 0, PEN_OF_MODEL, PEN_TO_EVERY, make_y, NULL};
static const struct pen_declared hidden = {
    .name = "hidden", .extents = "batch sequence hidden", .split = 0, .dtype = PEN_OF_MODEL};

static uint32_t multiply(struct pen_graph *graph, const char *name, uint32_t layer,
                         const char *weight, uint32_t x) {
  int64_t width = graph->topology->model_hidden;
  const char *weight_name = pen_text("layers.%u.%s.weight", layer, weight);
  return pen_op_linear(graph, name, x,
                       pen_graph_weight(graph, weight_name, width, width, PEN_INITIAL_NORMAL, 0.25),
                       PEN_NONE);
}

static uint32_t input_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer, (void)x;
  return pen_graph_data(graph, &x_input);
}

static uint32_t first_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  return pen_op_scale(graph, "h1_scaled", multiply(graph, "h1", layer, "w1", x), 1.05);
}

static uint32_t second_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  uint32_t h2 = multiply(graph, "h2", layer, "w2", x),
           h = pen_op_elementwise(graph, PEN_OP_GELU, "gelu", h2, PEN_NONE);
  return pen_op_add(graph, "h2_y", h, pen_graph_data(graph, &y_input));
}

static uint32_t third_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  return multiply(graph, "h3", layer, "w3", x);
}

static uint32_t loss_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  pen_op_sum_loss(graph, x);
  return PEN_NONE;
}

static char *config_json(const struct pen_topology *topology) {
  return pen_text(
      "{\"model_type\": \"penstock_mlp\", \"hidden_size\": %lld, \"num_hidden_layers\": %lld}\n",
      (long long)topology->model_hidden, (long long)topology->model_layers);
}

const struct pen_family pen_family_mlp = {
    .name = "mlp",
    .before =
        (const struct pen_block_kind[]){{"input", input_block, NULL, &hidden, {&x_input}}, {0}},
    .layers_prefix = "layers.",
    .layer = (const struct pen_block_kind[]){{"w1", first_block, &hidden, &hidden, {0}},
                                             {"w2", second_block, &hidden, &hidden, {&y_input}},
                                             {"w3", third_block, &hidden, &hidden, {0}},
                                             {0}},
    .after = (const struct pen_block_kind[]){{"loss", loss_block, &hidden, NULL, {0}}, {0}},
    .input = (const struct pen_declared *const[]){&x_input, &y_input, NULL},
    .config_json = config_json,
};
