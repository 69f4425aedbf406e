/* rotary.c: the blocks of Llama (Touvron et al. 2023) and similar models: pre-norm causal
 * grouped-query attention with rotary positions, SwiGLU, and an untied head.
 *
 * Names and shapes are those of Hugging Face's LlamaForCausalLM. The initial values of residual
 * projections are smaller, as in GPT-2, so that the variance of the residual stream does not grow
 * with depth. The blocks (embedding, attention and feed-forward of each layer, final norm, head
 * with loss) send each other only the residual stream. */
#include "gen/families/rotary.h"

#include <math.h>
#include <string.h>

#include "gen/families/language.h"
#include "gen/model/builder.h"
#include "gen/model/splits.h"
#include "gen/base/arena.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

#define DEVIATION 0.02

static uint32_t make_rope_table(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  const struct pen_topology *t = graph->topology;
  return pen_op_rope_table(graph, "rope_table", t->model_head_dim, t->model_rope_theta, true);
}

static uint32_t make_local_rope_table(struct pen_graph *graph,
                                      const struct pen_declared *declared) {
  (void)declared;
  const struct pen_topology *t = graph->topology;
  return pen_op_rope_table(graph, "local_rope_table", t->model_head_dim, t->model_rope_local_theta,
                           false);
}

const struct pen_declared pen_rotary_table = {"rope_table", "positions head_dim", PEN_REPLICATED,
                                              PEN_F32,      PEN_TO_EVERY,         make_rope_table,
                                              NULL};
const struct pen_declared pen_rotary_local_table = {"local_rope_table",
                                                    "positions head_dim",
                                                    PEN_REPLICATED,
                                                    PEN_F32,
                                                    PEN_TO_EVERY,
                                                    make_local_rope_table,
                                                    NULL};
const struct pen_declared pen_rotary_hidden_states = {
    .name = "hidden_states", .extents = "batch held hidden", .split = 0, .dtype = PEN_OF_MODEL};

uint32_t pen_rotary_matrix(struct pen_graph *graph, uint32_t layer, const char *name, int64_t out,
                           int64_t in) {
  return pen_graph_columns(graph, pen_text("model.layers.%u.%s.weight", layer, name), out, in,
                           DEVIATION);
}

uint32_t pen_rotary_residual(struct pen_graph *graph, uint32_t layer, const char *value,
                             const uint32_t *x, const char *name, bool biased, int64_t in,
                             uint32_t addend) {
  double deviation = DEVIATION / sqrt(2.0 * (double)graph->topology->model_layers);
  const char *bias = biased ? pen_text("model.layers.%u.%s.bias", layer, name) : NULL;
  return pen_op_linear_rows(graph, value, x, pen_text("model.layers.%u.%s.weight", layer, name),
                            bias, graph->topology->model_hidden, in, deviation, addend);
}

uint32_t pen_rotary_norm(struct pen_graph *graph, const char *value, uint32_t x, const char *name,
                         int64_t width, unsigned features) {
  bool offset = features & PEN_ROTARY_OFFSET_GAINS;
  uint32_t gain = pen_graph_weight(graph, pen_text("%s.weight", name), width, 0,
                                   offset ? PEN_INITIAL_ZEROS : PEN_INITIAL_ONES, 0);
  return pen_op_rmsnorm(graph, value, x, gain, offset ? 1 : 0);
}

uint32_t pen_rotary_layer_norm(struct pen_graph *graph, uint32_t layer, const char *value,
                               uint32_t x, const char *name, unsigned features) {
  return pen_rotary_norm(graph, value, x, pen_text("model.layers.%u.%s", layer, name),
                         graph->topology->model_hidden, features);
}

uint32_t pen_rotary_embedding(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer, (void)x;
  return pen_op_embedding_rows(graph, "embedding", &pen_language_tokens, PEN_ROTARY_EMBEDDING,
                               DEVIATION);
}

/* The product `name` of x by the current split of a weight of layer n, with a bias if `biased`. */
static uint32_t projection(struct pen_graph *graph, uint32_t n, const char *block, const char *name,
                           uint32_t x, int64_t width, bool biased) {
  const char *part = pen_text("%s.%s_proj", block, name);
  uint32_t weight = pen_rotary_matrix(graph, n, part, width, graph->topology->model_hidden);
  uint32_t product = pen_op_linear(graph, name, x, weight, PEN_NONE);
  if (!biased) return product;
  uint32_t bias =
      pen_graph_columns_bias(graph, pen_text("model.layers.%u.%s.bias", n, part), width);
  return pen_op_bias(graph, pen_text("%s_bias", name), product, bias);
}

/* The norm over each head of q or k. */
static uint32_t head_norm(struct pen_graph *graph, uint32_t n, const char *name, uint32_t x,
                          unsigned features) {
  return pen_rotary_norm(graph, name, x, pen_text("model.layers.%u.self_attn.%s", n, name),
                         graph->topology->model_head_dim, features);
}

/* So that scores are divided by the square root of model.query_scalar. */
static uint32_t scaled_query(struct pen_graph *graph, uint32_t q) {
  int64_t head = graph->topology->model_head_dim, scalar = graph->topology->model_query_scalar;
  if (scalar == 0 || scalar == head) return q;
  return pen_op_scale(graph, "q_scaled", q, sqrt((double)head / (double)scalar));
}

/* The attention of the heads of the current split. */
static uint32_t heads_of_split(struct pen_graph *graph, uint32_t n, uint32_t x, unsigned features) {
  const struct pen_topology *t = graph->topology;
  int64_t head = t->model_head_dim, kv_width = t->model_kv_heads * head;
  int64_t heads = t->model_heads / graph->splits, kv_heads = t->model_kv_heads / graph->splits;
  const bool biased = features & PEN_ROTARY_BIASES || t->model_attention_bias;
  uint32_t q = projection(graph, n, "self_attn", "q", x, t->model_heads * head, biased);
  uint32_t k = projection(graph, n, "self_attn", "k", x, kv_width, biased);
  uint32_t v = projection(graph, n, "self_attn", "v", x, kv_width, biased);
  if (features & PEN_ROTARY_HEAD_NORMS) {
    q = head_norm(graph, n, "q_norm", q, features);
    k = head_norm(graph, n, "k_norm", k, features);
  }
  uint32_t table = pen_graph_data(
      graph, features & PEN_ROTARY_LOCAL_TABLE ? &pen_rotary_local_table : &pen_rotary_table);
  uint32_t starts = pen_language_starts_of(graph);
  q = pen_op_rope(graph, "q_rope", q, table, starts, heads, head);
  k = pen_op_rope(graph, "k_rope", k, table, starts, kv_heads, head);
  return pen_op_attention(graph, "attention", scaled_query(graph, q), k, v, starts, heads, kv_heads,
                          head, features & PEN_ROTARY_WINDOW ? t->model_window : 0);
}

uint32_t pen_rotary_heads(struct pen_graph *graph, uint32_t n, const char *value, uint32_t x,
                          uint32_t addend, unsigned features) {
  const struct pen_topology *t = graph->topology;
  uint32_t o[PEN_SPLITS_MAX];
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++)
    o[k] = heads_of_split(graph, n, x, features);
  return pen_rotary_residual(graph, n, value, o, "self_attn.o_proj", t->model_attention_bias,
                             t->model_heads * t->model_head_dim, addend);
}

uint32_t pen_rotary_attention(struct pen_graph *graph, uint32_t n, uint32_t x, unsigned features) {
  uint32_t norm = pen_rotary_layer_norm(graph, n, "input_norm", x, "input_layernorm", features);
  return pen_rotary_heads(graph, n, "residual", norm, x, features);
}

void pen_rotary_gated(struct pen_graph *graph, uint32_t n, const char *value, uint32_t x, int op,
                      uint32_t *y) {
  const struct pen_topology *t = graph->topology;
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t gate = projection(graph, n, "mlp", "gate", x, t->model_ffn, t->model_mlp_bias);
    uint32_t up = projection(graph, n, "mlp", "up", x, t->model_ffn, t->model_mlp_bias);
    y[k] = pen_op_elementwise(graph, op, value, gate, up);
  }
}

uint32_t pen_rotary_mlp(struct pen_graph *graph, uint32_t n, uint32_t x) {
  uint32_t norm = pen_rotary_layer_norm(graph, n, "mlp_norm", x, "post_attention_layernorm", 0);
  uint32_t y[PEN_SPLITS_MAX];
  pen_rotary_gated(graph, n, "swiglu", norm, PEN_OP_SWIGLU, y);
  return pen_rotary_residual(graph, n, "output", y, "mlp.down_proj",
                             graph->topology->model_mlp_bias, graph->topology->model_ffn, x);
}

static uint32_t norm_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  return pen_rotary_norm(graph, "norm", x, "model.norm", graph->topology->model_hidden, 0);
}

const struct pen_block_kind pen_rotary_before[] = {
    {"model.embed_tokens",
     pen_rotary_embedding,
     NULL,
     &pen_rotary_hidden_states,
     {&pen_language_tokens}},
    {0},
};

const struct pen_block_kind pen_rotary_after[] = {
    {"model.norm", norm_block, &pen_rotary_hidden_states, &pen_rotary_hidden_states, {0}},
    {"lm_head", pen_language_head, &pen_rotary_hidden_states, NULL, {&pen_language_targets}},
    {0},
};

const struct pen_declared *const pen_rotary_input[] = {
    &pen_language_tokens, &pen_language_targets, &pen_language_starts, &pen_rotary_table, NULL};
