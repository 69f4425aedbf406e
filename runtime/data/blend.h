/* blend.h: which file of a blend each window comes from (train --data A=0.7 --data B=0.3).
 *
 * A tree divides n windows: each node divides its own n between two sides in proportion to their
 * weights, floor(n * first / all + 1/2) to the first. The count of a side rises by 0 or 1 with each
 * window of the node, so one walk from the root finds the file of any position, and which of that
 * file's windows it is: no table, no state, O(depth) a window, at most the number of files.
 *
 * After any n windows each file is within 1.5 windows of its share. A node's rounding is off by at
 * most 1/2, and what its own n is off by reaches a file in proportion, so a file of weight v is off
 * by at most v/2 times the sum of 1/weight over the nodes on its path, itself included, without the
 * root. A node is divided by giving its files, heaviest first, each to the lighter side (Graham
 * 1969). The larger side without its last, lightest file was the lighter one: so all = 2 * larger -
 * lightest at least. Where v is beside files of weight u, nodes above have at least v+u, 2v+u,
 * 4v+u,
 * ...: the sum is below (1 + 1 + 1/2 + 1/4 + ...)/v = 3/v. */
#ifndef PEN_BLEND_H
#define PEN_BLEND_H

#include <stdint.h>

struct pen_blend_node {
  uint64_t weight;
  uint32_t side[2]; /* indices of nodes; of a file both are 0 */
  uint32_t file;
};

struct pen_blend {
  struct pen_blend_node *nodes; /* [2 * files - 1], the root first */
  uint32_t node_count;
};

/* Allocates the tree of `count` > 0 files, whose weights are above 0 and add up to less than 2^63.
 */
struct pen_blend pen_blend_make(const uint64_t *weights, uint32_t count);

/* The file of a position, and which of that file's windows it is, counted from 0 without end. */
uint32_t pen_blend_file(const struct pen_blend *blend, uint64_t position, uint64_t *window);

#endif
