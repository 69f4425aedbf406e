/* families.c: the table of families, and the list of a model's blocks. */
#include "gen/families/families.h"
#include "gen/base/arena.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static const struct {
  const struct pen_family *family;
  bool needs_tokens;
} families[] = {
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, meaning) \
  {&pen_family_##name, needs_tokens},
#include "gen/topology/families.def"
};

const struct pen_family *pen_family_find(enum pen_family_kind kind) {
  return families[kind].family;
}

bool pen_family_needs_tokens(const struct pen_family *family) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (families[i].family == family) return families[i].needs_tokens;
  return false;
}

static uint32_t count_kinds(const struct pen_block_kind *kind) {
  uint32_t count = 0;
  while (kind[count].name) count++;
  return count;
}

struct pen_model_block *pen_family_blocks(const struct pen_family *family, uint32_t layers,
                                          uint32_t *count) {
  uint32_t parts = count_kinds(family->layer), made = 0;
  struct pen_model_block *block = pen_new(
      (size_t)count_kinds(family->before) + (size_t)layers * parts + count_kinds(family->after) + 1,
      sizeof *block);
  for (const struct pen_block_kind *kind = family->before; kind->name; kind++)
    block[made++] = (struct pen_model_block){kind->name, PEN_NONE, false, kind};
  for (uint32_t layer = 0; layer < layers; layer++)
    for (uint32_t part = 0; part < parts; part++) {
      bool periodic = family->period && (layer + 1) % family->period == 0;
      const struct pen_block_kind *kind =
          &(periodic ? family->periodic_layer : family->layer)[part];
      const char *name = pen_text("%s%u.%s", family->layers_prefix, layer, kind->name);
      block[made++] = (struct pen_model_block){name, layer, part == 0, kind};
    }
  for (const struct pen_block_kind *kind = family->after; kind->name; kind++)
    block[made++] = (struct pen_model_block){kind->name, PEN_NONE, false, kind};
  *count = made;
  return block;
}

const char *pen_family_block_names(const struct pen_family *family) {
  const char *text = "";
  for (const struct pen_block_kind *kind = family->before; kind->name; kind++)
    text = pen_text("%s%s, ", text, kind->name);
  for (const struct pen_block_kind *kind = family->layer; kind->name; kind++)
    text = pen_text("%s%sN.%s, ", text, family->layers_prefix, kind->name);
  for (const struct pen_block_kind *kind = family->after; kind->name; kind++)
    text = pen_text("%s%s%s", text, kind == family->after ? "" : ", ", kind->name);
  return text;
}
