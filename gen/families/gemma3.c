/* gemma3.c: the text model of Gemma 3 (Kamath et al. 2025), with the names of Hugging Face's
 * Gemma3ForCausalLM: five layers of six have a sliding window and positions of another base; norms
 * before and after attention and feed-forward, and over each head of q and k; GEGLU; the embedding
 * is scaled by sqrt(hidden). Weights of norms are gains less 1. */
#include <math.h>

#include "gen/families/rotary.h"
#include "gen/model/builder.h"
#include "gen/model/splits.h"
#include "gen/topology/topology.h"

enum { PERIOD = 6, FEATURES = PEN_ROTARY_HEAD_NORMS | PEN_ROTARY_OFFSET_GAINS };

static uint32_t embedding_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  return pen_op_scale(graph, "scaled", pen_rotary_embedding(graph, layer, x),
                      sqrt((double)graph->topology->model_hidden));
}

static uint32_t attention(struct pen_graph *graph, uint32_t n, uint32_t x, unsigned features) {
  uint32_t norm = pen_rotary_layer_norm(graph, n, "input_norm", x, "input_layernorm", features);
  uint32_t y = pen_rotary_heads(graph, n, "attended", norm, PEN_NONE, features);
  return pen_op_add(
      graph, "residual", x,
      pen_rotary_layer_norm(graph, n, "attention_norm", y, "post_attention_layernorm", features));
}

static uint32_t local_attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return attention(graph, n, x, FEATURES | PEN_ROTARY_WINDOW | PEN_ROTARY_LOCAL_TABLE);
}

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return attention(graph, n, x, FEATURES);
}

static uint32_t mlp_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  uint32_t norm =
      pen_rotary_layer_norm(graph, n, "mlp_norm", x, "pre_feedforward_layernorm", FEATURES);
  uint32_t product[PEN_SPLITS_MAX];
  pen_rotary_gated(graph, n, "geglu", norm, PEN_OP_GEGLU, product);
  uint32_t y = pen_rotary_residual(graph, n, "down", product, "mlp.down_proj", false,
                                   graph->topology->model_ffn, PEN_NONE);
  return pen_op_add(
      graph, "output", x,
      pen_rotary_layer_norm(graph, n, "output_norm", y, "post_feedforward_layernorm", FEATURES));
}

static uint32_t norm_block(struct pen_graph *graph, uint32_t layer, uint32_t x) {
  (void)layer;
  return pen_rotary_norm(graph, "norm", x, "model.norm", graph->topology->model_hidden, FEATURES);
}

#define LAYER(attention, table)                                                          \
  (const struct pen_block_kind[]) {                                                      \
    {"self_attn",                                                                        \
     attention,                                                                          \
     &pen_rotary_hidden_states,                                                          \
     &pen_rotary_hidden_states,                                                          \
     {table, &pen_language_starts}},                                                     \
        {"mlp", mlp_block, &pen_rotary_hidden_states, &pen_rotary_hidden_states, {0}}, { \
      0                                                                                  \
    }                                                                                    \
  }

const struct pen_family pen_family_gemma3_text = {
    .name = "gemma3_text",
    .before = (const struct pen_block_kind[]){{"model.embed_tokens",
                                               embedding_block,
                                               NULL,
                                               &pen_rotary_hidden_states,
                                               {&pen_language_tokens}},
                                              {0}},
    .layers_prefix = "model.layers.",
    .layer = LAYER(local_attention_block, &pen_rotary_local_table),
    .other_layer = LAYER(attention_block, &pen_rotary_table),
    .period = PERIOD,
    .after =
        (const struct pen_block_kind[]){
            {"model.norm", norm_block, &pen_rotary_hidden_states, &pen_rotary_hidden_states, {0}},
            {"lm_head",
             pen_language_head,
             &pen_rotary_hidden_states,
             NULL,
             {&pen_language_targets}},
            {0}},
    .input = (const struct pen_declared *const[]){&pen_language_tokens, &pen_language_targets,
                                                  &pen_language_starts, &pen_rotary_table,
                                                  &pen_rotary_local_table, NULL},
    .embedding = PEN_ROTARY_EMBEDDING,
};
