/* pack.c: dynamic storage allocation with known lifetimes: put rectangles (bytes x rows) at offsets so that no two that live at
 * the same time overlap, in as few bytes as we can.
 *
 * The problem is NP-hard (Garey and Johnson, SR2); two greedy orders are tried and the better one kept: (1) largest first, each at
 * the lowest offset where it fits among those placed (the rule of TensorFlow Lite Micro's planner); (2) by first row, same rule,
 * which is exact interval colouring when all sizes are equal. */
#include <stdlib.h>
#include <string.h>

#include "gen/layout.h"

/* Above this many rectangles the quadratic orders are too slow, and (2) alone is used, with a window of live ones. */
enum { QUADRATIC_MAX = 6000 };

static const struct pen_rectangle *sorting; /* qsort has no argument for it */

static int by_size(const void *a, const void *b) {
  const struct pen_rectangle *x = &sorting[*(const uint32_t *)a], *y = &sorting[*(const uint32_t *)b];
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int by_start(const void *a, const void *b) {
  const struct pen_rectangle *x = &sorting[*(const uint32_t *)a], *y = &sorting[*(const uint32_t *)b];
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* Placed rectangles in rising offset, as indices. */
struct placed {
  uint32_t *index;
  size_t count;
};

static void insert(struct placed *placed, const struct pen_rectangle *rectangle, uint32_t item) {
  size_t low = 0, high = placed->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (rectangle[placed->index[middle]].offset <= rectangle[item].offset)
      low = middle + 1;
    else
      high = middle;
  }
  memmove(&placed->index[low + 1], &placed->index[low], (placed->count - low) * sizeof *placed->index);
  placed->index[low] = item;
  placed->count++;
}

/* The lowest offset where `item` fits among those placed that live while it does. */
static uint64_t first_fit(const struct placed *placed, const struct pen_rectangle *rectangle, uint32_t item) {
  const struct pen_rectangle *r = &rectangle[item];
  uint64_t offset = 0;
  for (size_t i = 0; i < placed->count; i++) {
    const struct pen_rectangle *other = &rectangle[placed->index[i]];
    if (other->last < r->first || r->last < other->first) continue;
    if (other->offset >= offset + r->bytes) break;
    uint64_t end = other->offset + other->bytes;
    if (end > offset) offset = end;
  }
  return offset;
}

/* Drops those that ended before `row`; only when items come by first row. */
static void forget(struct placed *placed, const struct pen_rectangle *rectangle, uint32_t row) {
  size_t kept = 0;
  for (size_t i = 0; i < placed->count; i++)
    if (rectangle[placed->index[i]].last >= row) placed->index[kept++] = placed->index[i];
  placed->count = kept;
}

static uint64_t place_in_order(struct pen_rectangle *rectangle, size_t count, const uint32_t *order, bool by_row) {
  struct placed placed = {.index = pen_new(count + 1, sizeof(uint32_t))};
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++) {
    struct pen_rectangle *r = &rectangle[order[i]];
    if (by_row) forget(&placed, rectangle, r->first);
    r->offset = first_fit(&placed, rectangle, order[i]);
    insert(&placed, rectangle, order[i]);
    if (r->offset + r->bytes > total) total = r->offset + r->bytes;
  }
  return total;
}

uint64_t pen_pack(struct pen_rectangle *rectangle, size_t count) {
  uint32_t *order = pen_new(count + 1, sizeof *order);
  uint64_t *kept = pen_new(count + 1, sizeof *kept);
  sorting = rectangle;
  for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
  qsort(order, count, sizeof *order, by_start);
  uint64_t best = place_in_order(rectangle, count, order, true);
  if (count > QUADRATIC_MAX) return best;
  for (size_t i = 0; i < count; i++) kept[i] = rectangle[i].offset;
  qsort(order, count, sizeof *order, by_size);
  uint64_t other = place_in_order(rectangle, count, order, false);
  if (other < best) return other;
  for (size_t i = 0; i < count; i++) rectangle[i].offset = kept[i];
  return best;
}
