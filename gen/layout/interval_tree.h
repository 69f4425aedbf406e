/* interval_tree.h: the values in a buffer of a stage, and where another fits: see interval_tree.c.
 */
#ifndef PEN_INTERVAL_TREE_H
#define PEN_INTERVAL_TREE_H

#include "gen/model/graph.h"

/* The ops of a program during which a value is live; first > last: none. */
struct pen_live_range {
  uint32_t first, last;
};

struct pen_interval {
  uint64_t offset, bytes;
  struct pen_live_range live[PEN_PROGRAMS];
};

/* All zero: an empty buffer. */
struct pen_interval_tree {
  struct pen_interval_node *node;
  size_t count;
  uint32_t root;  /* node + 1 */
  uint64_t bytes; /* the end of the highest */
};

void pen_interval_tree_add(struct pen_interval_tree *intervals,
                           const struct pen_interval *interval);
/* Sets interval->offset to the highest at which it fits without making the buffer larger; false:
 * none, or none is found soon. */
bool pen_interval_tree_fit(const struct pen_interval_tree *intervals,
                           struct pen_interval *interval);
void pen_interval_tree_free(struct pen_interval_tree *intervals);

#endif
