/* interval_tree.c: the values in one buffer, each with its bytes and the ops during which it is
 * live.
 *
 * Another value is placed at the highest offset where it fits: from the end of the buffer down past
 * all that it overlaps, to the first gap that is large enough. A stage of a thousand layers has ten
 * thousands of values, and each is compared with all the others. So they are in a balanced tree in
 * descending order of their ends (a treap: Seidel and Aragon 1996). Each node has, for each program
 * and all intervals below it:
 *
 *   hull   the ops in which any of them is live: an interval outside of it overlaps none
 *   core   an interval that touches it overlaps all; if no gap between them is large enough, it is
 *          placed below all of them
 *
 * What F keeps is live from its op on, or up to it, in the order of its offsets, and scratch of one
 * size is at one offset in the order of ops: so a few nodes near the top answer nearly every query.
 */
#include "gen/layout/interval_tree.h"
#include "gen/base/arena.h"

enum {
  NONE = 0,
  VISITS_MAX = 2000, /* of nodes, in one query: further ones rarely help */
};

/* A summary of the intervals of a tree in one program. */
struct outline {
  struct pen_live_range hull; /* first and last op; empty if no interval is in the program */
  struct pen_live_range core; /* the last first op and the first last op */
  uint64_t end, low;          /* the highest end, the lowest offset */
  uint64_t gap;               /* the largest between two consecutive ones */
};

struct pen_interval_node {
  struct pen_interval interval;
  uint32_t above, below; /* node + 1: ends as high or higher; ends no higher */
  struct outline outline[PEN_PROGRAMS];
};

static uint64_t end_of(const struct pen_interval *interval) {
  return interval->offset + interval->bytes;
}
static bool is_in(const struct pen_live_range *live) { return live->first <= live->last; }
static bool ranges_touch(const struct pen_live_range *a, const struct pen_live_range *b) {
  return a->first <= b->last && b->first <= a->last;
}

static bool intervals_overlap(const struct pen_interval *a, const struct pen_interval *b) {
  for (int p = 0; p < PEN_PROGRAMS; p++)
    if (is_in(&a->live[p]) && is_in(&b->live[p]) && ranges_touch(&a->live[p], &b->live[p]))
      return true;
  return false;
}

/* ---- the tree ---- */

static struct pen_interval_node *node_of(const struct pen_interval_tree *t, uint32_t tree) {
  return &t->node[tree - 1];
}

/* Any fixed order that is independent of the ends keeps the tree balanced. */
static uint32_t node_priority(uint32_t tree) {
  tree = (tree ^ tree >> 16) * UINT32_C(0x85ebca6b); /* MurmurHash3's finalizer: Appleby 2011 */
  tree = (tree ^ tree >> 13) * UINT32_C(0xc2b2ae35);
  return tree ^ tree >> 16;
}

static uint32_t lesser_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t greater_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The summary of two trees, of which the first ends higher. */
static struct outline join_outlines(const struct outline *above, const struct outline *below) {
  if (!is_in(&above->hull)) return *below;
  if (!is_in(&below->hull)) return *above;
  struct outline both = {.hull = {lesser_of(above->hull.first, below->hull.first),
                                  greater_of(above->hull.last, below->hull.last)},
                         .core = {greater_of(above->core.first, below->core.first),
                                  lesser_of(above->core.last, below->core.last)},
                         .end = above->end,
                         .low = above->low < below->low ? above->low : below->low,
                         .gap = above->low > below->end ? above->low - below->end : 0};
  if (above->gap > both.gap) both.gap = above->gap;
  if (below->gap > both.gap) both.gap = below->gap;
  return both;
}

static void summarize_node(const struct pen_interval_tree *t, uint32_t tree) {
  struct pen_interval_node *node = node_of(t, tree);
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const struct pen_live_range *live = &node->interval.live[p];
    struct outline *outline = &node->outline[p];
    *outline = (struct outline){*live, *live, end_of(&node->interval), node->interval.offset, 0};
    if (node->above) *outline = join_outlines(&node_of(t, node->above)->outline[p], outline);
    if (node->below) *outline = join_outlines(outline, &node_of(t, node->below)->outline[p]);
  }
}

/* Splits a tree into the intervals that end at `end` or higher, and the others. */
static void split_tree(const struct pen_interval_tree *t, uint32_t tree, uint64_t end,
                       uint32_t *above, uint32_t *below) {
  if (!tree) {
    *above = *below = NONE;
    return;
  }
  struct pen_interval_node *node = node_of(t, tree);
  if (end_of(&node->interval) >= end) {
    split_tree(t, node->below, end, &node->below, below);
    *above = tree;
  } else {
    split_tree(t, node->above, end, above, &node->above);
    *below = tree;
  }
  summarize_node(t, tree);
}

/* Inserts a node after all that end as high; returns the root. */
static uint32_t insert_node(const struct pen_interval_tree *t, uint32_t tree, uint32_t added) {
  struct pen_interval_node *node = tree ? node_of(t, tree) : NULL, *own = node_of(t, added);
  uint64_t end = end_of(&own->interval);
  if (!node || node_priority(added) > node_priority(tree)) {
    split_tree(t, tree, end, &own->above, &own->below);
    tree = added;
  } else if (end_of(&node->interval) >= end) {
    node->below = insert_node(t, node->below, added);
  } else {
    node->above = insert_node(t, node->above, added);
  }
  summarize_node(t, tree);
  return tree;
}

void pen_interval_tree_add(struct pen_interval_tree *t, const struct pen_interval *interval) {
  PEN_RESERVE(t->node, t->count + 1);
  t->node[t->count++] = (struct pen_interval_node){.interval = *interval};
  t->root = insert_node(t, t->root, (uint32_t)t->count);
  if (end_of(interval) > t->bytes) t->bytes = end_of(interval);
}

void pen_interval_tree_free(struct pen_interval_tree *t) {
  pen_free(t->node);
  *t = (struct pen_interval_tree){0};
}

/* ---- queries ---- */

/* How an interval relates to a whole tree. */
struct relation {
  bool overlaps_none; /* it overlaps none */
  bool packed;        /* no gap where it could be is large enough */
  uint64_t low, end;  /* of all in its programs */
};

static struct relation relate_to_tree(const struct pen_interval_node *node,
                                      const struct pen_interval *interval, uint64_t top) {
  struct relation relation = {.overlaps_none = true, .low = UINT64_MAX};
  uint64_t packed_low = UINT64_MAX;
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const struct outline *outline = &node->outline[p];
    const struct pen_live_range *live = &interval->live[p];
    if (!is_in(live) || !is_in(&outline->hull)) continue;
    if (ranges_touch(&outline->hull, live)) relation.overlaps_none = false;
    if (outline->low < relation.low) relation.low = outline->low;
    if (outline->end > relation.end) relation.end = outline->end;
    bool overlaps_all = ranges_touch(&outline->core, live),
         fits_above = outline->end + interval->bytes <= top;
    if (overlaps_all && !fits_above && outline->gap < interval->bytes && outline->low < packed_low)
      packed_low = outline->low;
  }
  relation.packed = packed_low == relation.low; /* else one of another program may reach lower */
  return relation;
}

/* One query. */
struct descent {
  const struct pen_interval_tree *intervals;
  const struct pen_interval *interval; /* to be placed */
  uint64_t top;                        /* the highest end that is possible */
  uint32_t visits;
};

/* Goes down past the intervals of a tree that the new one overlaps. True if the query is answered:
 * it fits just below the top, or nowhere. */
static bool descend_tree(struct descent *d, uint32_t tree) {
  if (!tree) return false;
  const struct pen_interval_node *node = node_of(d->intervals, tree);
  struct relation relation = relate_to_tree(node, d->interval, d->top);
  if (relation.overlaps_none) return false;
  if (relation.end + d->interval->bytes <= d->top) return true;
  if (++d->visits > VISITS_MAX) d->top = 0;
  if (relation.packed) {
    if (relation.low < d->top) d->top = relation.low;
    return d->top < d->interval->bytes;
  }
  if (descend_tree(d, node->above)) return true;
  if (intervals_overlap(&node->interval, d->interval)) {
    if (end_of(&node->interval) + d->interval->bytes <= d->top) return true;
    if (node->interval.offset < d->top) d->top = node->interval.offset;
  }
  return d->top < d->interval->bytes || descend_tree(d, node->below);
}

bool pen_interval_tree_fit(const struct pen_interval_tree *t, struct pen_interval *interval) {
  struct descent descent = {.intervals = t, .interval = interval, .top = t->bytes};
  if (descent.top < interval->bytes) return false;
  descend_tree(&descent, t->root);
  if (descent.top < interval->bytes) return false;
  interval->offset = descent.top - interval->bytes;
  return true;
}
