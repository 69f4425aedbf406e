/* rotary.h: the blocks of Llama and similar models; a family adds its attention, its list of blocks
 * and its name. */
#ifndef PEN_ROTARY_H
#define PEN_ROTARY_H

#include "gen/families/language.h"
#include "gen/topology/topology.h"

#define PEN_ROTARY_EMBEDDING "model.embed_tokens.weight"

extern const struct pen_declared
    pen_rotary_hidden_states; /* (batch, sequence, hidden): the residual stream */
extern const struct pen_declared
    pen_rotary_table; /* (positions, head_dim): the output of ROPE_TABLE */
extern const struct pen_declared *const pen_rotary_input[];
extern const struct pen_block_kind pen_rotary_before[],
    pen_rotary_after[]; /* embedding; final norm, head with loss */

enum pen_rotary_feature {
  PEN_ROTARY_HEAD_NORMS = 1, /* an RMSNorm over each head of q and k before the positions (q_norm,
                                k_norm: one gain for all heads of a layer) */
  PEN_ROTARY_BIASES = 2,     /* biases of q, k and v */
};

/* The attention of layer n, plus x. `features`: bits of enum pen_rotary_feature. */
uint32_t pen_rotary_attention(struct pen_graph *graph, uint32_t n, uint32_t x, unsigned features);
/* The SwiGLU of layer n, plus x. */
uint32_t pen_rotary_mlp(struct pen_graph *graph, uint32_t n, uint32_t x);

/* config.json; `more`: further `"key": value` of the family, separated by commas. */
char *pen_rotary_config(const struct pen_topology *t, const char *architecture, const char *type,
                        const char *more);

/* Defines a family of that name, whose layers are this attention block and pen_rotary_mlp. */
#define PEN_ROTARY_FAMILY(title, attention, config)                                             \
  {                                                                                             \
    .name = title, .before = pen_rotary_before, .layers_prefix = "model.layers.",               \
    .layer =                                                                                    \
        (const struct pen_block_kind[]){                                                        \
            {"self_attn",                                                                       \
             attention,                                                                         \
             &pen_rotary_hidden_states,                                                         \
             &pen_rotary_hidden_states,                                                         \
             {&pen_rotary_table, &pen_language_starts}},                                        \
            {"mlp", pen_rotary_mlp, &pen_rotary_hidden_states, &pen_rotary_hidden_states, {0}}, \
            {0}},                                                                               \
    .after = pen_rotary_after, .input = pen_rotary_input, .embedding = PEN_ROTARY_EMBEDDING,    \
    .config_json = config,                                                                      \
  }

#endif
