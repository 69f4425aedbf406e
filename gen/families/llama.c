/* llama.c: Llama (Touvron et al. 2023): pre-norm blocks of rotary grouped-query causal attention and SwiGLU, untied head.
 *
 * Names and shapes are those of Hugging Face's LlamaForCausalLM. A residual projection starts smaller, as in GPT-2, so that
 * the residual stream's variance does not grow with depth. */
#include <math.h>
#include <string.h>

#include "gen/families/families.h"

#define DEVIATION 0.02

static uint32_t matrix(struct pen_graph *graph, const char *name, int64_t out, int64_t in) {
  return pen_graph_weight(graph, name, out, in, PEN_INITIAL_NORMAL, DEVIATION);
}

static uint32_t layer_matrix(struct pen_graph *graph, uint32_t layer, const char *name, int64_t out, int64_t in) {
  return matrix(graph, pen_text("model.layers.%u.%s.weight", layer, name), out, in);
}

static uint32_t residual_matrix(struct pen_graph *graph, uint32_t layer, const char *name, int64_t out, int64_t in) {
  double deviation = DEVIATION / sqrt(2.0 * (double)graph->topology->model_layers);
  return pen_graph_weight(graph, pen_text("model.layers.%u.%s.weight", layer, name), out, in, PEN_INITIAL_NORMAL, deviation);
}

static uint32_t gain(struct pen_graph *graph, const char *name) {
  return pen_graph_weight(graph, name, graph->topology->model_hidden, 0, PEN_INITIAL_ONES, 0);
}

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x, uint32_t table) {
  const struct pen_topology *t = graph->topology;
  int64_t hidden = t->model_hidden, head = t->model_head_dim;
  int64_t q_width = t->model_heads * head, kv_width = t->model_kv_heads * head;
  uint32_t norm = op_rmsnorm(graph, "input_norm", x, gain(graph, pen_text("model.layers.%u.input_layernorm.weight", n)));
  uint32_t q = op_linear(graph, "q", norm, layer_matrix(graph, n, "self_attn.q_proj", q_width, hidden), PEN_NONE);
  uint32_t k = op_linear(graph, "k", norm, layer_matrix(graph, n, "self_attn.k_proj", kv_width, hidden), PEN_NONE);
  uint32_t v = op_linear(graph, "v", norm, layer_matrix(graph, n, "self_attn.v_proj", kv_width, hidden), PEN_NONE);
  q = op_rope(graph, "q_rope", q, table, t->model_heads, head);
  k = op_rope(graph, "k_rope", k, table, t->model_kv_heads, head);
  uint32_t o = op_attention(graph, "attention", q, k, v, t->model_heads, t->model_kv_heads, head);
  return op_linear(graph, "residual", o, residual_matrix(graph, n, "self_attn.o_proj", hidden, q_width), x);
}

static uint32_t mlp_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  int64_t hidden = graph->topology->model_hidden, ffn = graph->topology->model_ffn;
  uint32_t norm =
      op_rmsnorm(graph, "mlp_norm", x, gain(graph, pen_text("model.layers.%u.post_attention_layernorm.weight", n)));
  uint32_t gate = op_linear(graph, "gate", norm, layer_matrix(graph, n, "mlp.gate_proj", ffn, hidden), PEN_NONE);
  uint32_t up = op_linear(graph, "up", norm, layer_matrix(graph, n, "mlp.up_proj", ffn, hidden), PEN_NONE);
  uint32_t y = op_swiglu(graph, "swiglu", gate, up);
  return op_linear(graph, "output", y, residual_matrix(graph, n, "mlp.down_proj", hidden, ffn), x);
}

void pen_family_llama(struct pen_graph *graph) {
  const struct pen_topology *t = graph->topology;
  bool first = graph->stage == 0, last = graph->stage + 1 == graph->stage_count;
  uint32_t x;
  if (first) {
    uint32_t table = matrix(graph, "model.embed_tokens.weight", t->model_vocab, t->model_hidden);
    x = op_embedding(graph, "embedding", op_tokens(graph), table);
  } else {
    x = pen_graph_input(graph, t->model_hidden);
  }
  uint32_t rope = PEN_NONE;
  if (graph->span.first_layer < graph->span.past_last_layer) rope = op_rope_table(graph, t->model_head_dim);
  for (uint32_t n = graph->span.first_layer; n < graph->span.past_last_layer; n++) {
    graph->prefix = pen_text("layers.%u.", n);
    x = attention_block(graph, n, x, rope);
    x = mlp_block(graph, n, x);
  }
  graph->prefix = "";
  if (!last) {
    pen_graph_output(graph, x);
    return;
  }
  x = op_rmsnorm(graph, "norm", x, gain(graph, "model.norm.weight"));
  uint32_t logits = op_linear(graph, "logits", x, matrix(graph, "lm_head.weight", t->model_vocab, t->model_hidden), PEN_NONE);
  if (strcmp(t->model_loss, "sum") == 0)
    op_sum_loss(graph, logits);
  else
    op_cross_entropy(graph, logits, op_targets(graph));
}

char *pen_config_llama(const struct pen_topology *t) {
  return pen_text("{\n"
                  "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                  "  \"model_type\": \"llama\",\n"
                  "  \"hidden_size\": %lld,\n  \"intermediate_size\": %lld,\n  \"num_hidden_layers\": %lld,\n"
                  "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n  \"head_dim\": %lld,\n"
                  "  \"vocab_size\": %lld,\n  \"max_position_embeddings\": %lld,\n"
                  "  \"rms_norm_eps\": %.17g,\n  \"rope_theta\": %.17g,\n"
                  "  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n  \"mlp_bias\": false,\n"
                  "  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"float32\"\n}\n",
                  (long long)t->model_hidden, (long long)t->model_ffn, (long long)t->model_layers,
                  (long long)t->model_heads, (long long)t->model_kv_heads, (long long)t->model_head_dim,
                  (long long)t->model_vocab, (long long)t->model_sequence, t->model_norm_epsilon, t->model_rope_theta);
}
