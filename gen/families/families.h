/* families.h: the model families, one file each.
 *
 * In: the settings of the group model. Out: a struct pen_family (gen/model/blocks.h) for each row
 * of gen/topology/families.def: its kinds of blocks, whose functions emit forward ops with
 * gen/model/builder.h; the tensors that blocks read and send each other; and its config.json.
 *
 *   families.c  finds a family, lists the blocks of a model
 *   language.c  tokens and loss of all language models; rotary.c the blocks of Llama-like models;
 *   moe.c  blocks of experts
 *   mlp.c gemma3.c gpt2.c llama.c mistral.c qwen2.c qwen3.c  one family each, and of experts
 *   dots1.c mixtral.c qwen3_moe.c
 *   described.c  a family of a description; described_ops.c appends its ops
 *
 */
#ifndef PEN_FAMILIES_H
#define PEN_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/blocks.h"
#include "gen/topology/topology.h"

const struct pen_family *pen_family_find(enum pen_family_kind kind);
/* The family of a topology: one of those, or what its description makes. Fails (78) if an op of the
 * description does not match its row. */
const struct pen_family *pen_family_of(const struct pen_topology *topology);
bool pen_family_needs_tokens(const struct pen_family *family);
/* All blocks of a model of that many layers, in order; the topology says which layers are others
 * (is_other()). */
struct pen_model_block *pen_family_blocks(const struct pen_family *family,
                                          const struct pen_topology *topology, uint32_t layers,
                                          uint32_t *count);

/* The names of its kinds of blocks, for messages and the manual: "model.embed_tokens,
 * model.layers.N.self_attn, ...". */
const char *pen_family_block_names(const struct pen_family *family);

#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, experts, \
                   meaning)                                                                  \
  extern const struct pen_family pen_family_##name;
#include "gen/topology/families.def"

#endif
