/* blend.c: divides windows among the files of a blend (see blend.h). */
#include "runtime/data/blend.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/check.h"

struct weighted_file {
  uint64_t weight;
  uint32_t file;
};

/* Heaviest first; of equal ones the first. */
static int compare(const void *a, const void *b) {
  const struct weighted_file *x = a, *y = b;
  return x->weight != y->weight ? (x->weight < y->weight) - (x->weight > y->weight)
                                : (x->file > y->file) - (x->file < y->file);
}

/* Gives each file to the lighter side, the first side's to the front; both keep their order.
 * Returns how many the first side has. */
static uint32_t divide(struct weighted_file *files, struct weighted_file *room, uint32_t count) {
  uint64_t first_weight = 0, second_weight = 0;
  uint32_t first = 0, second = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (first_weight <= second_weight) {
      first_weight += files[i].weight;
      files[first++] = files[i];
    } else {
      second_weight += files[i].weight;
      room[second++] = files[i];
    }
  }
  for (uint32_t i = 0; i < second; i++) {
    files[first + i] = room[i];
  }
  return first;
}

/* Adds the tree of the files, and returns its root. */
static uint32_t add_node(struct pen_blend *blend, struct weighted_file *files,
                         struct weighted_file *room, uint32_t count) {
  const uint32_t at = blend->node_count++;
  struct pen_blend_node *node = &blend->nodes[at];
  node->file = files[0].file;
  for (uint32_t i = 0; i < count; i++) {
    node->weight += files[i].weight;
  }
  if (count > 1) {
    const uint32_t first = divide(files, room, count);
    node->side[0] = add_node(blend, files, room, first);
    node->side[1] = add_node(blend, files + first, room, count - first);
  }
  return at;
}

struct pen_blend pen_blend_make(const uint64_t *weights, uint32_t count) {
  struct weighted_file *files = pen_allocate(count, 2 * sizeof *files, "%u files", count);
  struct pen_blend blend = {
      .nodes = pen_allocate(2 * (size_t)count, sizeof *blend.nodes, "%u files", count)};
  for (uint32_t i = 0; i < count; i++) {
    files[i] = (struct weighted_file){weights[i], i};
  }
  qsort(files, count, sizeof *files, compare);
  add_node(&blend, files, files + count, count);
  free(files);
  return blend;
}

/* How many of a node's n windows its first side has. */
static uint64_t first_of(const struct pen_blend *blend, const struct pen_blend_node *node,
                         uint64_t n) {
  const unsigned __int128 first = blend->nodes[node->side[0]].weight, all = node->weight;
  return (uint64_t)((2 * n * first + all) / (2 * all));
}

uint32_t pen_blend_file(const struct pen_blend *blend, uint64_t position, uint64_t *window) {
  const struct pen_blend_node *node = blend->nodes;
  while (node->side[0] != 0) {
    const uint64_t before = first_of(blend, node, position);
    const bool is_first = first_of(blend, node, position + 1) > before;
    position = is_first ? before : position - before;
    node = &blend->nodes[node->side[is_first ? 0 : 1]];
  }
  *window = position;
  return node->file;
}
