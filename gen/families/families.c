/* families.c: the table of families, and the list of a model's blocks. */
#include "gen/families/families.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/families/described.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static const struct {
  const struct pen_family *family;
  bool needs_tokens;
} families[] = {
#define PEN_FAMILY(name, needs_tokens, rotary, windows, ties, loss, splits, biases, experts, \
                   meaning)                                                                  \
  {&pen_family_##name, needs_tokens},
#include "gen/topology/families.def"
};

const struct pen_family *pen_family_find(enum pen_family_kind kind) {
  return families[kind].family;
}

const struct pen_family *pen_family_of(const struct pen_topology *topology) {
  return topology->description ? pen_described_family(topology->description)
                               : pen_family_find(topology->model_family);
}

bool pen_family_needs_tokens(const struct pen_family *family) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].family->name, family->name) == 0) return families[i].needs_tokens;
  return false;
}

static uint32_t count_kinds(const struct pen_block_kind *kind) {
  uint32_t count = 0;
  while (kind[count].name) count++;
  return count;
}

/* Those of a description, but for layers from the number `layers` on. */
static struct pen_model_block *listed_blocks(const struct pen_family *family, uint32_t layers,
                                             uint32_t *count) {
  struct pen_model_block *block = pen_new(family->block_count + 1u, sizeof *block);
  *count = 0;
  for (uint32_t b = 0; b < family->block_count; b++)
    if (family->block[b].layer == PEN_NONE || family->block[b].layer < layers)
      block[(*count)++] = family->block[b];
  return block;
}

static bool is_other(const struct pen_family *family, const struct pen_topology *topology,
                     uint32_t layer) {
  return family->is_other ? family->is_other(topology, layer)
                          : family->period && (layer + 1) % family->period == 0;
}

struct pen_model_block *pen_family_blocks(const struct pen_family *family,
                                          const struct pen_topology *topology, uint32_t layers,
                                          uint32_t *count) {
  if (family->block) return listed_blocks(family, layers, count);
  uint32_t parts = count_kinds(family->layer), made = 0;
  struct pen_model_block *block = pen_new(
      (size_t)count_kinds(family->before) + (size_t)layers * parts + count_kinds(family->after) + 1,
      sizeof *block);
  for (const struct pen_block_kind *kind = family->before; kind->name; kind++)
    block[made++] = (struct pen_model_block){kind->name, PEN_NONE, false, kind, NULL};
  for (uint32_t layer = 0; layer < layers; layer++)
    for (uint32_t part = 0; part < parts; part++) {
      const bool other = is_other(family, topology, layer);
      const struct pen_block_kind *kind = &(other ? family->other_layer : family->layer)[part];
      const char *name = pen_text("%s%u.%s", family->layers_prefix, layer, kind->name);
      block[made++] = (struct pen_model_block){name, layer, part == 0, kind, NULL};
    }
  for (const struct pen_block_kind *kind = family->after; kind->name; kind++)
    block[made++] = (struct pen_model_block){kind->name, PEN_NONE, false, kind, NULL};
  *count = made;
  return block;
}

/* The first block of each kind. */
static const char *listed_names(const struct pen_family *family) {
  const char *text = "";
  for (uint32_t b = 0; b < family->block_count; b++) {
    uint32_t first = 0;
    while (family->block[first].kind != family->block[b].kind) first++;
    if (first == b) text = pen_text("%s%s%s", text, b ? ", " : "", family->block[b].name);
  }
  return text;
}

const char *pen_family_block_names(const struct pen_family *family) {
  const char *text = "";
  if (family->block) return listed_names(family);
  if (!family->layer->name)
    return "where one value passes, named after the module of the first weight";
  for (const struct pen_block_kind *kind = family->before; kind->name; kind++)
    text = pen_text("%s%s, ", text, kind->name);
  for (const struct pen_block_kind *kind = family->layer; kind->name; kind++)
    text = pen_text("%s%sN.%s, ", text, family->layers_prefix, kind->name);
  for (const struct pen_block_kind *kind = family->after; kind->name; kind++)
    text = pen_text("%s%s%s", text, kind == family->after ? "" : ", ", kind->name);
  return text;
}
