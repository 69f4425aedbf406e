/* families.h: the families of models, one file each.
 *
 * In: the settings of model. Out: a struct pen_family (gen/model/blocks.h) for each line of
 * gen/topology/families.def: its kinds of blocks, whose functions emit forward ops by
 * gen/model/builder.h, the tensors that enter them or pass between them, and its config.json.
 */
#ifndef PEN_FAMILIES_H
#define PEN_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/blocks.h"
#include "gen/topology/topology.h"

const struct pen_family *pen_family_find(const char *name); /* null: no such family */
bool pen_family_needs_tokens(const struct pen_family *family);
/* All blocks of a model of that many layers, in order. */
struct pen_model_block *pen_family_blocks(const struct pen_family *family, uint32_t layers,
                                          uint32_t *count);

/* Its kinds of block in words, for messages and manual: "model.embed_tokens,
 * model.layers.N.self_attn, ...". */
const char *pen_family_block_names(const struct pen_family *family);

#define PEN_FAMILY(name, needs_tokens, rotary, ties, loss, meaning) \
  extern const struct pen_family pen_family_##name;
#include "gen/topology/families.def"

#endif
