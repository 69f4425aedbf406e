/* tenants.h: the values in one base's block of a stage, and where another would fit among them: see
 * tenants.c. */
#ifndef PEN_TENANTS_H
#define PEN_TENANTS_H

#include "gen/model/graph.h"

/* The ops of a program during which a value holds its bytes; first > last: none. */
struct pen_live_range {
  uint32_t first, last;
};

struct pen_interval {
  uint64_t offset, bytes;
  struct pen_live_range stay[PEN_PROGRAMS];
};

/* All zero: an empty block. */
struct pen_interval_tree {
  struct pen_interval_node *node;
  size_t count, capacity;
  uint32_t root;  /* node + 1 */
  uint64_t bytes; /* the end of the highest */
};

void pen_interval_tree_add(struct pen_interval_tree *tenants, const struct pen_interval *tenant);
/* The highest offset where a tenant fits without making the block larger; false: none, or none that
 * is found soon. */
bool pen_interval_tree_fit(const struct pen_interval_tree *tenants, struct pen_interval *tenant);
void pen_interval_tree_free(struct pen_interval_tree *tenants);

#endif
