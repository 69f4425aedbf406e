/* tenants.c: the values in one base's block, each with its bytes and with the ops during which it
 * holds them.
 *
 * Another goes to the highest offset where it fits: down from the block's end past all that it
 * meets, to the first gap that is large enough. A stage of a thousand layers has ten thousands of
 * values, each asked for room among all the others; so tenants stand in a balanced tree by falling
 * end (a treap: Seidel and Aragon 1996), where each node knows of all below it, program by program:
 *
 *   hull   in which ops any of them holds its bytes: who comes and goes outside of that meets none
 *   core   who touches it meets every one; if then no gap between them is large enough, the way
 * leads past all of them
 *
 * What F keeps is held from its op on, or up to it, in the order of its offsets, and scratch of one
 * size stands at one height in the order of ops: so nearly every question is answered by a few
 * nodes near the top. */
#include "gen/layout/interval_tree.h"
#include "gen/base/arena.h"

enum {
  NONE = 0,
  VISITS_MAX = 2000, /* nodes that one question may take: what it would find behind them is not
                        worth the time */
};

/* What a tree knows of those of its tenants that are in one program. */
struct outline {
  struct pen_live_range
      hull; /* the first op and the last; none at all when nobody is in the program */
  struct pen_live_range core; /* the last first op and the first last op */
  uint64_t end, low;          /* the highest end, the lowest offset */
  uint64_t gap; /* no two that follow each other by falling end leave more between them */
};

struct pen_interval_node {
  struct pen_interval tenant;
  uint32_t above,
      below; /* node + 1 of those that end as high or higher, and of those that end no higher */
  struct outline outline[PEN_PROGRAMS];
};

static uint64_t end_of(const struct pen_interval *tenant) { return tenant->offset + tenant->bytes; }
static bool is_in(const struct pen_live_range *stay) { return stay->first <= stay->last; }
static bool touches(const struct pen_live_range *a, const struct pen_live_range *b) {
  return a->first <= b->last && b->first <= a->last;
}

static bool meet(const struct pen_interval *a, const struct pen_interval *b) {
  for (int p = 0; p < PEN_PROGRAMS; p++)
    if (is_in(&a->stay[p]) && is_in(&b->stay[p]) && touches(&a->stay[p], &b->stay[p])) return true;
  return false;
}

/* ---- the tree ---- */

static struct pen_interval_node *node_of(const struct pen_interval_tree *t, uint32_t tree) {
  return &t->node[tree - 1];
}

/* Any fixed order that has nothing to do with that of the ends keeps the tree flat. */
static uint32_t priority(uint32_t tree) {
  tree = (tree ^ tree >> 16) * UINT32_C(0x85ebca6b); /* MurmurHash3's finalizer: Appleby 2011 */
  tree = (tree ^ tree >> 13) * UINT32_C(0xc2b2ae35);
  return tree ^ tree >> 16;
}

static uint32_t lesser(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t greater(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Two outlines as one: of what ends higher, and of what ends no higher. */
static struct outline join(const struct outline *above, const struct outline *below) {
  if (!is_in(&above->hull)) return *below;
  if (!is_in(&below->hull)) return *above;
  struct outline both = {.hull = {lesser(above->hull.first, below->hull.first),
                                  greater(above->hull.last, below->hull.last)},
                         .core = {greater(above->core.first, below->core.first),
                                  lesser(above->core.last, below->core.last)},
                         .end = above->end,
                         .low = above->low < below->low ? above->low : below->low,
                         .gap = above->low > below->end ? above->low - below->end : 0};
  if (above->gap > both.gap) both.gap = above->gap;
  if (below->gap > both.gap) both.gap = below->gap;
  return both;
}

static void summarize(const struct pen_interval_tree *t, uint32_t tree) {
  struct pen_interval_node *node = node_of(t, tree);
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const struct pen_live_range *stay = &node->tenant.stay[p];
    struct outline *outline = &node->outline[p];
    *outline = (struct outline){*stay, *stay, end_of(&node->tenant), node->tenant.offset, 0};
    if (node->above) *outline = join(&node_of(t, node->above)->outline[p], outline);
    if (node->below) *outline = join(outline, &node_of(t, node->below)->outline[p]);
  }
}

/* Parts a tree into what ends no lower than `end`, and lower. */
static void split(const struct pen_interval_tree *t, uint32_t tree, uint64_t end, uint32_t *above,
                  uint32_t *below) {
  if (!tree) {
    *above = *below = NONE;
    return;
  }
  struct pen_interval_node *node = node_of(t, tree);
  if (end_of(&node->tenant) >= end) {
    split(t, node->below, end, &node->below, below);
    *above = tree;
  } else {
    split(t, node->above, end, above, &node->above);
    *below = tree;
  }
  summarize(t, tree);
}

/* Puts a new node behind all that end as high; returns the tree's root. */
static uint32_t insert(const struct pen_interval_tree *t, uint32_t tree, uint32_t added) {
  struct pen_interval_node *node = tree ? node_of(t, tree) : NULL, *own = node_of(t, added);
  uint64_t end = end_of(&own->tenant);
  if (!node || priority(added) > priority(tree)) {
    split(t, tree, end, &own->above, &own->below);
    tree = added;
  } else if (end_of(&node->tenant) >= end) {
    node->below = insert(t, node->below, added);
  } else {
    node->above = insert(t, node->above, added);
  }
  summarize(t, tree);
  return tree;
}

void pen_interval_tree_add(struct pen_interval_tree *t, const struct pen_interval *tenant) {
  t->node = pen_grow(t->node, &t->capacity, t->count + 1, sizeof *t->node);
  t->node[t->count++] = (struct pen_interval_node){.tenant = *tenant};
  t->root = insert(t, t->root, (uint32_t)t->count);
  if (end_of(tenant) > t->bytes) t->bytes = end_of(tenant);
}

void pen_interval_tree_free(struct pen_interval_tree *t) {
  pen_free(t->node);
  *t = (struct pen_interval_tree){0};
}

/* ---- room ---- */

/* How a tenant stands to a whole tree. */
struct relation {
  bool none;         /* it meets nobody */
  bool packed;       /* where it would have to be, nobody leaves as many bytes as it wants */
  uint64_t low, end; /* of all that are in its programs */
};

static struct relation relate(const struct pen_interval_node *node,
                              const struct pen_interval *tenant, uint64_t top) {
  struct relation relation = {.none = true, .low = UINT64_MAX};
  uint64_t packed_low = UINT64_MAX;
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const struct outline *outline = &node->outline[p];
    const struct pen_live_range *stay = &tenant->stay[p];
    if (!is_in(stay) || !is_in(&outline->hull)) continue;
    if (touches(&outline->hull, stay)) relation.none = false;
    if (outline->low < relation.low) relation.low = outline->low;
    if (outline->end > relation.end) relation.end = outline->end;
    bool meets_all = touches(&outline->core, stay),
         fits_above = outline->end + tenant->bytes <= top;
    if (meets_all && !fits_above && outline->gap < tenant->bytes && outline->low < packed_low)
      packed_low = outline->low;
  }
  relation.packed = packed_low == relation.low; /* else one of another program may reach lower */
  return relation;
}

/* On the way down. */
struct descent {
  const struct pen_interval_tree *tenants;
  const struct pen_interval *tenant; /* that wants room */
  uint64_t top;                      /* it is to end here at the highest */
  uint32_t visits;
};

/* Goes down past what a tenant meets in a tree. True when there is no need to go on: it fits right
 * below the top, or that is too low. */
static bool go_down(struct descent *d, uint32_t tree) {
  if (!tree) return false;
  const struct pen_interval_node *node = node_of(d->tenants, tree);
  struct relation relation = relate(node, d->tenant, d->top);
  if (relation.none) return false;
  if (relation.end + d->tenant->bytes <= d->top) return true;
  if (++d->visits > VISITS_MAX) d->top = 0;
  if (relation.packed) {
    if (relation.low < d->top) d->top = relation.low;
    return d->top < d->tenant->bytes;
  }
  if (go_down(d, node->above)) return true;
  if (meet(&node->tenant, d->tenant)) {
    if (end_of(&node->tenant) + d->tenant->bytes <= d->top) return true;
    if (node->tenant.offset < d->top) d->top = node->tenant.offset;
  }
  return d->top < d->tenant->bytes || go_down(d, node->below);
}

bool pen_interval_tree_fit(const struct pen_interval_tree *t, struct pen_interval *tenant) {
  struct descent descent = {.tenants = t, .tenant = tenant, .top = t->bytes};
  if (descent.top < tenant->bytes) return false;
  go_down(&descent, t->root);
  if (descent.top < tenant->bytes) return false;
  tenant->offset = descent.top - tenant->bytes;
  return true;
}
