/* cut.c: how what a stage saves for W is cut into pieces that are placed one by one.
 *
 * One block a microbatch is best where all stages of a rank save as much: equal blocks are interval
 * colouring. Stages that differ leave gaps that fit nobody. There are four ways to have pieces that
 * do:
 *
 *   layers  a piece for every so many parts (layers, and what stands around them)
 *   blocks  a piece for every block of the model (an attention, an MLP), where stages have few, and
 * may begin within a layer: blocks of one kind keep as much, so whatever the mix of stages, each
 * size is an interval colouring of its own. What one block hands on to the next is kept apart: as
 * much of it as all stages of the rank have, and the rest alike   a piece for every part, but each
 * of the very sizes that most parts of the rank's stages have in common; what a part has beside
 * them (the first layer's embedding, the last one's output) goes to one last piece even    as many
 * pieces as there may be, of about the same size: small enough to go wherever something large was
 */
#include <stdlib.h>
#include <string.h>

#include "gen/layout/split_buffers.h"
#include "gen/base/arena.h"

/* The sizes of one part, falling. */
struct part {
  uint64_t *size, bytes;
  size_t count;
};

static int falling(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

static struct part part_of(const struct pen_saved *saved, size_t count, uint32_t number) {
  struct part part = {.size = pen_new(count + 1, sizeof *part.size)};
  for (size_t i = 0; i < count; i++)
    if (saved[i].part == number) {
      part.size[part.count++] = saved[i].bytes;
      part.bytes += saved[i].bytes;
    }
  qsort(part.size, part.count, sizeof *part.size, falling);
  return part;
}

static bool contains(const struct part *whole, const uint64_t *size, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < whole->count && found < count; i++) found += whole->size[i] == size[found];
  return found == count;
}

static uint32_t parts_in(const struct pen_saved *saved, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++)
    if (saved[i].part + 1 > most) most = saved[i].part + 1;
  return most;
}

struct pen_common pen_common_sizes(const struct pen_saved *const *saved, const size_t *count,
                                   size_t stages) {
  size_t parts = 0, n = 0;
  for (size_t s = 0; s < stages; s++) parts += parts_in(saved[s], count[s]);
  struct part *part = pen_new(parts + 1, sizeof *part);
  for (size_t s = 0; s < stages; s++)
    for (uint32_t k = 0, past = parts_in(saved[s], count[s]); k < past; k++)
      part[n++] = part_of(saved[s], count[s], k);
  struct pen_common common = {0};
  double most = 0;
  for (size_t i = 0; i < n; i++) {
    double weight = 0; /* a large piece in common is worth more than the same bytes in small ones */
    for (size_t k = 0; k < n; k++)
      if (contains(&part[k], part[i].size, part[i].count))
        weight += (double)part[i].bytes * (double)part[i].bytes;
    if (weight <= most) continue;
    most = weight;
    common = (struct pen_common){part[i].size, part[i].count, part[i].bytes};
  }
  return common;
}

/* One part: what it has in common into a piece of its own, the rest into the last. Returns the next
 * free piece. */
static uint32_t cut_part(const struct pen_saved *saved, size_t count, uint32_t number,
                         const struct pen_common *common, uint32_t next, uint8_t *piece) {
  struct part part = part_of(saved, count, number);
  bool alike = common->count && contains(&part, common->size, common->count),
       large = 2 * part.bytes >= common->bytes;
  bool *taken = pen_new(common->count + 1, sizeof *taken);
  bool room = next + 1 < PEN_PIECES && (alike || large);
  for (size_t i = 0; i < count; i++) {
    if (saved[i].part != number) continue;
    bool own = room && !alike;
    for (size_t k = 0; room && alike && !own && k < common->count; k++)
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
      piece[i] = (uint8_t)(saved[i].part / split->layers_per_piece);
    if (split->kind == PEN_SPLIT_BLOCKS)
      piece[i] = (uint8_t)(!saved[i].passed_on           ? saved[i].block
                           : passed++ < split->passed_on ? PEN_PIECES - 2
                                                         : PEN_PIECES - 1);
    if (split->kind == PEN_SPLIT_EVEN) piece[i] = (uint8_t)(before * PEN_PIECES / total);
    before += saved[i].bytes;
  }
  uint32_t next = 0;
  for (uint32_t part = 0; split->kind == PEN_SPLIT_COMMON && part < parts_in(saved, count); part++)
    next = cut_part(saved, count, part, &split->common, next, piece);
  return piece;
}
