/* moe.h: feed-forward blocks that are mixtures of experts, for families whose attention is that of
 * rotary.h. */
#ifndef PEN_MOE_H
#define PEN_MOE_H

#include "gen/families/rotary.h"

/* The names of a block's weights within its layer, without ".weight" but for the bias; `*` is an
 * expert's number. Without a bias of the router, or experts that all rows have, null. */
struct pen_moe_names {
  const char *router, *gate, *up, *down;
  const char *bias, *shared_gate, *shared_up, *shared_down;
};

/* The experts of layer n, and the SwiGLU that all rows have (model.shared_experts). Plus x. */
uint32_t pen_moe_block(struct pen_graph *graph, uint32_t n, uint32_t x,
                       const struct pen_moe_names *names);

/* Whether a layer has no experts, but a SwiGLU. */
bool pen_moe_is_dense(const struct pen_topology *topology, uint32_t layer);

/* The kinds of blocks of a layer, whose second has that name. */
#define PEN_MOE_LAYER(attention, block, emit)                                          \
  (const struct pen_block_kind[]) {                                                    \
    {"self_attn",                                                                      \
     attention,                                                                        \
     &pen_rotary_hidden_states,                                                        \
     &pen_rotary_hidden_states,                                                        \
     {&pen_rotary_table, &pen_language_starts}},                                       \
        {block, emit, &pen_rotary_hidden_states, &pen_rotary_hidden_states, {0}}, {0}, \
  }

/* Defines a family of that name, whose layers are this attention block and a block of that name. */
#define PEN_MOE_FAMILY(title, block, attention, experts)                                          \
  {                                                                                               \
    .name = title, .before = pen_rotary_before, .layers_prefix = "model.layers.",                 \
    .layer = PEN_MOE_LAYER(attention, block, experts),                                            \
    .other_layer = PEN_MOE_LAYER(attention, block, pen_rotary_mlp), .is_other = pen_moe_is_dense, \
    .after = pen_rotary_after, .input = pen_rotary_input, .embedding = PEN_ROTARY_EMBEDDING,      \
  }

#endif
