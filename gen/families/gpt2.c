/* gpt2.c: GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks with LayerNorm and
 * biases, GELU by tanh.
 *
 * Names and shapes are those of Hugging Face's GPT2LMHeadModel, whose matrices are [in, out]
 * (Conv1D), with q, k and v in one matrix. The initial values of residual projections are smaller,
 * so that the variance of the residual stream does not grow with depth. The blocks are those of
 * llama: embedding, attention and feed-forward of each layer, final norm, head with loss. */
#include <math.h>

#include "gen/families/language.h"
#include "gen/model/builder.h"
#include "gen/model/splits.h"
#include "gen/base/arena.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"

#define DEVIATION 0.02
#define EMBEDDING "transformer.wte.weight"

static const struct pen_declared hidden_states = {
    .name = "hidden_states", .extents = "batch held hidden", .split = 0, .dtype = PEN_OF_MODEL};

static const char *part(uint32_t n, const char *name) {
  return pen_text("transformer.h.%u.%s", n, name);
}

static double residual_deviation(const struct pen_graph *graph) {
  return DEVIATION / sqrt(2.0 * (double)graph->topology->model_layers);
}

static uint32_t layernorm(struct pen_graph *graph, const char *value, const char *name,
                          uint32_t x) {
  int64_t hidden = graph->topology->model_hidden;
  uint32_t gain =
      pen_graph_weight(graph, pen_text("%s.weight", name), hidden, 0, PEN_INITIAL_ONES, 0);
  uint32_t bias =
      pen_graph_weight(graph, pen_text("%s.bias", name), hidden, 0, PEN_INITIAL_ZEROS, 0);
  return pen_op_layernorm(graph, value, x, gain, bias);
}

static uint32_t embedding_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer, (void)x;
  const struct pen_topology *t = graph->topology;
  uint32_t embedded =
      pen_op_embedding_rows(graph, "embedding", &pen_language_tokens, EMBEDDING, DEVIATION);
  uint32_t positions = pen_graph_weight(graph, "transformer.wpe.weight", t->model_sequence,
                                        t->model_hidden, PEN_INITIAL_NORMAL, DEVIATION);
  return pen_op_position(graph, "positioned", embedded, positions, pen_language_starts_of(graph));
}

/* Each of q, k and v has the width of the residual stream. */
static void check_gpt2_heads(const struct pen_topology *t) {
  if (t->model_kv_heads != t->model_heads)
    pen_topology_fail(t, "model.kv_heads", "model.heads = %lld, with the family gpt2",
                      (long long)t->model_heads);
  if (t->model_head_dim * t->model_heads != t->model_hidden)
    pen_topology_fail(t, "model.head_dim", "model.hidden/model.heads, with the family gpt2");
}

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  const struct pen_topology *t = graph->topology;
  int64_t hidden = t->model_hidden;
  check_gpt2_heads(t);
  uint32_t norm = layernorm(graph, "input_norm", part(n, "ln_1"), x), o[PEN_SPLITS_MAX];
  const int64_t heads = t->model_heads / graph->splits;
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t q[3], joined = pen_op_affine_columns(graph, "qkv", norm, part(n, "attn.c_attn"),
                                                  hidden, 3 * hidden, 3, DEVIATION);
    pen_op_split(graph, "q", joined, q);
    o[k] = pen_op_attention(graph, "attention", q[0], q[1], q[2], pen_language_starts_of(graph),
                            heads, heads, t->model_head_dim, 0);
  }
  return pen_op_affine_rows(graph, "residual", o, part(n, "attn.c_proj"), hidden, hidden,
                            residual_deviation(graph), x);
}

static uint32_t mlp_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  int64_t hidden = graph->topology->model_hidden, ffn = graph->topology->model_ffn;
  uint32_t norm = layernorm(graph, "mlp_norm", part(n, "ln_2"), x), y[PEN_SPLITS_MAX];
  for (uint32_t k = 0; pen_graph_next_split(graph, k); k++) {
    uint32_t wide =
        pen_op_affine_columns(graph, "fc", norm, part(n, "mlp.c_fc"), hidden, ffn, 1, DEVIATION);
    y[k] = pen_op_elementwise(graph, PEN_OP_GELU_TANH, "gelu", wide, PEN_NONE);
  }
  return pen_op_affine_rows(graph, "output", y, part(n, "mlp.c_proj"), ffn, hidden,
                            residual_deviation(graph), x);
}

static uint32_t norm_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  return layernorm(graph, "norm", "transformer.ln_f", x);
}

const struct pen_family pen_family_gpt2 = {
    .name = "gpt2",
    .before = (const struct pen_block_kind[]){{"transformer.wte",
                                               embedding_block,
                                               NULL,
                                               &hidden_states,
                                               {&pen_language_tokens, &pen_language_starts}},
                                              {0}},
    .layers_prefix = "transformer.h.",
    .layer =
        (const struct pen_block_kind[]){
            {"attn", attention_block, &hidden_states, &hidden_states, {&pen_language_starts}},
            {"mlp", mlp_block, &hidden_states, &hidden_states, {0}},
            {0}},
    .after =
        (const struct pen_block_kind[]){
            {"transformer.ln_f", norm_block, &hidden_states, &hidden_states, {0}},
            {"lm_head", pen_language_head, &hidden_states, NULL, {&pen_language_targets}},
            {0}},
    .input = (const struct pen_declared *const[]){&pen_language_tokens, &pen_language_targets,
                                                  &pen_language_starts, NULL},
    .embedding = EMBEDDING,
};
