/* split_buffers.c: splits the buffer of SAVED_W into pieces that are placed separately.
 *
 * One buffer a microbatch is best if all stages of a rank save the same bytes: equal rectangles are
 * interval colouring. Stages that differ leave gaps that fit none of them. Four ways to split:
 *
 *   LAYERS  a piece for every so many layers (and what is before and after them)
 *   BLOCKS  a piece for every block of the model (an attention, an MLP), if stages have few: blocks
 *           of one kind save the same bytes, so each size is an interval colouring of its own. What
 *           one block passes to the next is apart: as much as all stages of the rank have, and the
 *           rest
 *   COMMON  a piece for every layer with the sizes that most layers of the rank have in common;
 *           what a layer has beside them (the embedding, the last output) is in one last piece
 *   EVEN    as many pieces as possible, of about the same size
 *
 * On the grid of bench-layout, NONE alone leaves 156 ranks above 1.03 times the bound; with EVEN
 * 53; with COMMON and EVEN 21; with all four none. */
#include <stdlib.h>
#include <string.h>

#include "gen/layout/split_buffers.h"
#include "gen/base/arena.h"

/* The sizes of one layer, in descending order. */
struct layer_sizes {
  uint64_t *size, bytes;
  size_t count;
};

static int compare_descending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

static struct layer_sizes sizes_of_layer(const struct pen_saved *saved, size_t count,
                                         uint32_t number) {
  struct layer_sizes layer = {.size = pen_new(count + 1, sizeof *layer.size)};
  for (size_t i = 0; i < count; i++)
    if (saved[i].layer == number) {
      layer.size[layer.count++] = saved[i].bytes;
      layer.bytes += saved[i].bytes;
    }
  qsort(layer.size, layer.count, sizeof *layer.size, compare_descending);
  return layer;
}

static bool contains_sizes(const struct layer_sizes *whole, const uint64_t *size, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < whole->count && found < count; i++) found += whole->size[i] == size[found];
  return found == count;
}

static uint32_t count_layers(const struct pen_saved *saved, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++)
    if (saved[i].layer + 1 > most) most = saved[i].layer + 1;
  return most;
}

struct pen_common pen_common_sizes(const struct pen_saved *const *saved, const size_t *count,
                                   size_t stages) {
  size_t layers = 0, n = 0;
  for (size_t s = 0; s < stages; s++) layers += count_layers(saved[s], count[s]);
  struct layer_sizes *layer = pen_new(layers + 1, sizeof *layer);
  for (size_t s = 0; s < stages; s++)
    for (uint32_t k = 0, past = count_layers(saved[s], count[s]); k < past; k++)
      layer[n++] = sizes_of_layer(saved[s], count[s], k);
  struct pen_common common = {0};
  double most = 0;
  for (size_t i = 0; i < n; i++) {
    double weight = 0; /* squared: one large common piece helps more than several small ones */
    for (size_t k = 0; k < n; k++)
      if (contains_sizes(&layer[k], layer[i].size, layer[i].count))
        weight += (double)layer[i].bytes * (double)layer[i].bytes;
    if (weight <= most) continue;
    most = weight;
    common = (struct pen_common){layer[i].size, layer[i].count, layer[i].bytes};
  }
  return common;
}

/* Splits a layer: its values of common sizes go to piece `next`, the others to the last piece.
 * Returns the next free piece. */
static uint32_t split_layer(const struct pen_saved *saved, size_t count, uint32_t number,
                            const struct pen_common *common, uint32_t next, uint8_t *piece) {
  struct layer_sizes layer = sizes_of_layer(saved, count, number);
  bool has_common = common->count && contains_sizes(&layer, common->size, common->count),
       large = 2 * layer.bytes >= common->bytes;
  bool *taken = pen_new(common->count + 1, sizeof *taken);
  bool room = next + 1 < PEN_PIECES && (has_common || large);
  for (size_t i = 0; i < count; i++) {
    if (saved[i].layer != number) continue;
    bool own = room && !has_common;
    for (size_t k = 0; room && has_common && !own && k < common->count; k++)
      if (!taken[k] && common->size[k] == saved[i].bytes) own = taken[k] = true;
    piece[i] = (uint8_t)(own ? next : PEN_PIECES - 1);
  }
  return next + room;
}

uint8_t *pen_split_saved(const struct pen_saved *saved, size_t count,
                         const struct pen_buffer_split *split) {
  uint8_t *piece = pen_new(count + 1, sizeof *piece);
  uint64_t total = 0, before = 0;
  size_t passed = 0;
  for (size_t i = 0; i < count; i++) total += saved[i].bytes;
  for (size_t i = 0; i < count; i++) {
    if (split->kind == PEN_SPLIT_LAYERS)
      piece[i] = (uint8_t)(saved[i].layer / split->layers_per_piece);
    if (split->kind == PEN_SPLIT_BLOCKS)
      piece[i] = (uint8_t)(!saved[i].passed_on           ? saved[i].block
                           : passed++ < split->passed_on ? PEN_PIECES - 2
                                                         : PEN_PIECES - 1);
    if (split->kind == PEN_SPLIT_EVEN) piece[i] = (uint8_t)(before * PEN_PIECES / total);
    before += saved[i].bytes;
  }
  uint32_t next = 0;
  for (uint32_t layer = 0; split->kind == PEN_SPLIT_COMMON && layer < count_layers(saved, count);
       layer++)
    next = split_layer(saved, count, layer, &split->common, next, piece);
  return piece;
}
