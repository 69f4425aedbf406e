/* rotary.h: the blocks of Llama and similar models; a family adds its attention, its list of blocks
 * and its name. */
#ifndef PEN_ROTARY_H
#define PEN_ROTARY_H

#include "gen/families/language.h"
#include "gen/topology/topology.h"

#define PEN_ROTARY_EMBEDDING "model.embed_tokens.weight"

extern const struct pen_declared
    pen_rotary_hidden_states; /* (batch, sequence, hidden): the residual stream */
/* (positions, head_dim): outputs of ROPE_TABLE; the second by model.rope_local_theta. */
extern const struct pen_declared pen_rotary_table, pen_rotary_local_table;
extern const struct pen_declared *const pen_rotary_input[];
extern const struct pen_block_kind pen_rotary_before[],
    pen_rotary_after[]; /* embedding; final norm, head with loss */

enum pen_rotary_feature {
  PEN_ROTARY_HEAD_NORMS = 1,   /* an RMSNorm over each head of q and k before the positions
                                  (q_norm, k_norm: one gain for all heads of a layer) */
  PEN_ROTARY_BIASES = 2,       /* biases of q, k and v, without a setting */
  PEN_ROTARY_WINDOW = 4,       /* model.window */
  PEN_ROTARY_LOCAL_TABLE = 8,  /* positions by pen_rotary_local_table */
  PEN_ROTARY_OFFSET_GAINS = 16 /* weights of norms are gains less 1 */
};

/* In the following, `features` are bits of enum pen_rotary_feature. */

/* The attention of layer n, plus x. */
uint32_t pen_rotary_attention(struct pen_graph *graph, uint32_t n, uint32_t x, unsigned features);
/* The SwiGLU of layer n, plus x. */
uint32_t pen_rotary_mlp(struct pen_graph *graph, uint32_t n, uint32_t x);

/* Their parts, for families that compose them otherwise. Weights are those of layer n, as
 * "model.layers.N.NAME.weight". */
uint32_t pen_rotary_embedding(struct pen_graph *graph, uint32_t layer, uint32_t x);
/* The attention of x (rows, hidden) and its product with o_proj, plus addend unless PEN_NONE. */
uint32_t pen_rotary_heads(struct pen_graph *graph, uint32_t n, const char *value, uint32_t x,
                          uint32_t addend, unsigned features);
/* The current split of a matrix (splits.h). */
uint32_t pen_rotary_matrix(struct pen_graph *graph, uint32_t n, const char *name, int64_t out,
                           int64_t in);
/* The two products of x in the feed-forward of layer n, joined by an op of that kind: y[k] is split
 * k. */
void pen_rotary_gated(struct pen_graph *graph, uint32_t n, const char *value, uint32_t x, int op,
                      uint32_t *y);
/* x, of which x[k] is split k, times a weight (hidden, in), plus a bias, and addend unless
 * PEN_NONE. */
uint32_t pen_rotary_residual(struct pen_graph *graph, uint32_t n, const char *value,
                             const uint32_t *x, const char *name, bool biased, int64_t in,
                             uint32_t addend);
uint32_t pen_rotary_layer_norm(struct pen_graph *graph, uint32_t n, const char *value, uint32_t x,
                               const char *name, unsigned features);
/* An RMSNorm over parts of x of that width; the weight is `name`.weight. */
uint32_t pen_rotary_norm(struct pen_graph *graph, const char *value, uint32_t x, const char *name,
                         int64_t width, unsigned features);

/* Defines a family of that name, whose layers are this attention block and pen_rotary_mlp. */
#define PEN_ROTARY_FAMILY(title, attention)                                                     \
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
  }

#endif
