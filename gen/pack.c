/* pack.c: dynamic storage allocation with known lifetimes: put rectangles (bytes x rows) at offsets so that no two that live at
 * the same time overlap, in as few bytes as we can.
 *
 * The problem is NP-hard (Garey and Johnson, SR2). Rectangles are taken one by one, each put at the lowest offset where it fits
 * among those there (first fit), or into the smallest gap that holds it (best fit). What differs is the order:
 *
 *   start     by first row: exact interval colouring when all sizes are equal (Gupta, Lee and Leung 1979); a sweep that keeps
 *             only what is alive, so it serves any number of rectangles
 *   size      largest first (TensorFlow Lite Micro's greedy planner; Pisarchyk and Lee, arXiv 2001.03288)
 *   area      bytes x rows, largest first (XLA's heap simulator, GlobalDecreasingSizeBestFitHeap's temporal order has it too)
 *   rows      longest first
 *
 * The bytes alive in one row are a lower bound; the first order that comes to it, or to the caller's goal, ends the search. If none
 * does and there are few enough rectangles, each order is climbed from: what ends above the bound is put to the front, as long as that
 * helps; then two rectangles change places, all are placed anew, and what is no worse is kept, until a fixed number of comparisons is
 * spent. The choice is random from a fixed seed. (Exact solvers: Telamalloc, ASPLOS 2022; MiniMalloc, ASPLOS 2023.) */
#include <stdlib.h>
#include <string.h>

#include "gen/layout.h"

enum { QUADRATIC_MAX = 3000 /* rectangles; above, only sweeps */ };

/* A placed rectangle; offsets in units. */
struct placed {
  uint32_t offset, end, first, last;
};

struct packing {
  struct pen_rectangle *rectangle; /* the first `fixed` have their places */
  size_t fixed, count;
  uint64_t bound, goal;
  uint64_t unit;                   /* bytes: what offsets are counted in while rectangles are placed */
  uint32_t wall, floor;            /* floor: the end of the fixed ones */
  uint32_t *order, *fixed_order;
  uint64_t *best_offset, best;     /* of all tries */
  uint64_t *here_end, here;        /* of the climb at hand: ends, total */
  uint32_t *here_order;
  struct placed *placed;           /* by rising offset */
  size_t placed_count, steps;
};

/* ---- one rectangle ---- */

static uint32_t units_of(const struct packing *p, uint64_t bytes) { return (uint32_t)((bytes + p->unit - 1) / p->unit); }

static void insert(struct packing *p, const struct placed *r) {
  size_t low = 0, high = p->placed_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (p->placed[middle].offset <= r->offset) low = middle + 1;
    else high = middle;
  }
  memmove(&p->placed[low + 1], &p->placed[low], (p->placed_count - low) * sizeof *p->placed);
  p->placed[low] = *r;
  p->placed_count++;
}

static void insert_fixed(struct packing *p, const struct pen_rectangle *r) {
  uint32_t offset = (uint32_t)(r->offset / p->unit);
  insert(p, &(struct placed){offset, units_of(p, r->offset + r->bytes), r->first, r->last});
}

/* The least offset from `from` on where `size` units do not cross the wall. */
static uint32_t behind_wall(const struct packing *p, uint32_t from, uint32_t size) {
  return from < p->wall && size > p->wall - from ? p->wall : from;
}

/* The place of `size` units among those placed that live while they do. */
static uint32_t find_place(struct packing *p, uint32_t size, uint32_t first, uint32_t last, bool best_fit) {
  uint32_t offset = 0, found = UINT32_MAX, waste = UINT32_MAX;
  p->steps += p->placed_count;
  for (const struct placed *other = p->placed, *past = other + p->placed_count; other < past; other++) {
    if ((other->last < first) | (last < other->first) | (other->end <= offset)) continue;
    uint32_t at = behind_wall(p, offset, size);
    if (other->offset >= at && other->offset - at >= size && other->offset - at - size < waste) {
      if (!best_fit) return at;
      found = at;
      waste = other->offset - at - size;
    }
    offset = other->end;
  }
  return found != UINT32_MAX ? found : behind_wall(p, offset, size);
}

/* Places one rectangle; returns its end in units. */
static uint32_t place(struct packing *p, struct pen_rectangle *r, bool best_fit) {
  uint32_t size = units_of(p, r->bytes), offset = find_place(p, size, r->first, r->last, best_fit);
  insert(p, &(struct placed){offset, offset + size, r->first, r->last});
  r->offset = offset * p->unit;
  return offset + size;
}

/* ---- one order ---- */

static void keep_if_best(struct packing *p, uint32_t units) {
  uint64_t total = units * p->unit;
  for (size_t i = p->fixed; total < p->best && i < p->count; i++) p->best_offset[i] = p->rectangle[i].offset;
  if (total < p->best) p->best = total;
  if (total > p->here) return;
  p->here = total;
  memcpy(p->here_order, p->order, (p->count - p->fixed) * sizeof *p->order);
  for (size_t i = p->fixed; i < p->count; i++) p->here_end[i] = p->rectangle[i].offset + p->rectangle[i].bytes;
}

/* Drops what ended before `row`. */
static void forget(struct packing *p, uint32_t row) {
  size_t kept = 0;
  for (size_t i = 0; i < p->placed_count; i++)
    if (p->placed[i].last >= row) p->placed[kept++] = p->placed[i];
  p->placed_count = kept;
}

/* Rectangles by first row. What has ended is dropped when it may be half; the fixed ones come when somebody lives long enough. */
static void sweep(struct packing *p, bool best_fit) {
  uint32_t total = p->floor;
  size_t fixed = 0, alive = 0;
  p->placed_count = 0;
  for (size_t i = 0; i < p->count - p->fixed; i++) {
    struct pen_rectangle *r = &p->rectangle[p->order[i]];
    for (; fixed < p->fixed && p->rectangle[p->fixed_order[fixed]].first <= r->last; fixed++)
      if (p->rectangle[p->fixed_order[fixed]].last >= r->first) insert_fixed(p, &p->rectangle[p->fixed_order[fixed]]);
    if (p->placed_count > alive + alive / 4 + 16) {
      forget(p, r->first);
      alive = p->placed_count;
    }
    uint32_t end = place(p, r, best_fit);
    if (end > total) total = end;
  }
  keep_if_best(p, total);
}

/* Rectangles in any order. */
static void place_all(struct packing *p, bool best_fit) {
  uint32_t total = p->floor;
  p->placed_count = 0;
  for (size_t i = 0; i < p->fixed; i++) insert_fixed(p, &p->rectangle[p->fixed_order[i]]);
  for (size_t i = 0; i < p->count - p->fixed; i++) {
    uint32_t end = place(p, &p->rectangle[p->order[i]], best_fit);
    if (end > total) total = end;
  }
  keep_if_best(p, total);
}

/* ---- orders ---- */

/* A rectangle's rank in an order: rising keys, then rising index. */
struct key {
  uint64_t key, second;
  uint32_t index;
};

static int compare_keys(const void *a, const void *b) {
  const struct key *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->second != y->second) return x->second < y->second ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

enum order { BY_START, BY_SIZE, BY_AREA, BY_ROWS, ORDERS };

static void sort_by(const struct packing *p, enum order order, size_t from, size_t past, uint32_t *out) {
  struct key *key = pen_new(past - from + 1, sizeof *key);
  for (size_t i = from; i < past; i++) {
    const struct pen_rectangle *r = &p->rectangle[i];
    uint64_t rows = (uint64_t)r->last - r->first + 1;
    struct key k[ORDERS] = {{r->first, ~r->bytes, 0}, {~r->bytes, r->first, 0}, {~(r->bytes / PEN_ALIGNMENT_BYTES * rows), r->first, 0},
                            {~rows, ~r->bytes, 0}};
    key[i - from] = k[order];
    key[i - from].index = (uint32_t)i;
  }
  qsort(key, past - from, sizeof *key, compare_keys);
  for (size_t i = 0; i < past - from; i++) out[i] = key[i].index;
}

/* The most bytes alive in one row. */
static uint64_t most_alive(const struct packing *p) {
  uint32_t rows = 0;
  for (size_t i = 0; i < p->count; i++)
    if (p->rectangle[i].last >= rows) rows = p->rectangle[i].last + 1;
  int64_t *change = pen_new(rows + 2u, sizeof *change), alive = 0, most = 0;
  for (size_t i = 0; i < p->count; i++) {
    const struct pen_rectangle *r = &p->rectangle[i];
    change[r->first] += (int64_t)r->bytes;
    change[r->last + 1] -= (int64_t)r->bytes;
  }
  for (uint32_t row = 0; row < rows; row++) {
    alive += change[row];
    if (alive > most) most = alive;
  }
  return (uint64_t)most;
}

static bool is_near(const struct packing *p) { return p->best <= p->goal || p->best <= p->bound; }

/* ---- repair ---- */

/* Puts what ends above the bound to the front of the order. Returns how many did. */
static size_t promote(struct packing *p) {
  size_t n = p->count - p->fixed, front = 0, back = 0;
  uint32_t *rest = p->fixed_order + p->fixed; /* room for n */
  for (size_t i = 0; i < n; i++) {
    uint32_t item = p->here_order[i];
    if (p->here_end[item] > (p->goal > p->bound ? p->goal : p->bound)) p->order[front++] = item;
    else rest[back++] = item;
  }
  memcpy(p->order + front, rest, back * sizeof *rest);
  return front;
}

/* Climbs from one order: while it helps, what ends above the bound is put to the front; then two rectangles at random change places,
 * and what is no worse is kept, until the steps are spent. */
static void climb(struct packing *p, bool best_fit, size_t steps) {
  uint64_t before = UINT64_MAX, seed = 0x9e3779b97f4a7c15u;
  size_t n = p->count - p->fixed;
  while (!is_near(p) && p->steps < steps && p->here < before) {
    before = p->here;
    if (promote(p)) place_all(p, best_fit);
  }
  while (!is_near(p) && p->steps < steps) {
    memcpy(p->order, p->here_order, n * sizeof *p->order);
    size_t place[2];
    for (int i = 0; i < 2; i++) { /* xorshift64: Marsaglia 2003 */
      seed ^= seed << 13;
      seed ^= seed >> 7;
      seed ^= seed << 17;
      place[i] = (size_t)(seed % n);
    }
    uint32_t item = p->order[place[0]];
    p->order[place[0]] = p->order[place[1]];
    p->order[place[1]] = item;
    place_all(p, best_fit);
  }
}

/* Every order but the sweeps', with its share of the steps. */
static void search(struct packing *p, size_t steps) {
  enum { WAYS = 2 * (ORDERS - BY_SIZE) };
  for (int way = 0; way < WAYS && !is_near(p) && p->steps < steps; way++) {
    enum order order = BY_SIZE + way / 2;
    p->here = UINT64_MAX;
    sort_by(p, order, p->fixed, p->count, p->order);
    place_all(p, way % 2);
    climb(p, way % 2, p->steps + (steps > p->steps ? steps - p->steps : 0) / (size_t)(WAYS - way));
  }
}

/* Units are small enough for any offset to be counted in 32 bits. */
static uint64_t unit_of(const struct pen_rectangle *rectangle, size_t fixed, size_t count) {
  uint64_t all = 0, unit = PEN_ALIGNMENT_BYTES;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = rectangle[i].bytes + (i < fixed ? rectangle[i].offset : 0);
    if (__builtin_add_overflow(all, pen_aligned(bytes), &all)) pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the model is too large");
  }
  while (all / unit + count >= UINT32_MAX) unit *= 2;
  return unit;
}

uint64_t pen_pack(struct pen_rectangle *rectangle, size_t fixed, size_t count, uint64_t wall, uint64_t limit, uint64_t goal,
                  size_t steps) {
  struct packing p = {.rectangle = rectangle, .fixed = fixed, .count = count, .goal = goal, .best = UINT64_MAX,
                      .here = UINT64_MAX};
  if (!count) return 0;
  p.unit = unit_of(rectangle, fixed, count);
  p.wall = units_of(&p, wall);
  for (size_t i = 0; i < fixed; i++)
    if (units_of(&p, rectangle[i].offset + rectangle[i].bytes) > p.floor) p.floor = units_of(&p, rectangle[i].offset + rectangle[i].bytes);
  p.bound = most_alive(&p);
  if (p.floor * p.unit > p.bound) p.bound = p.floor * p.unit;
  if (p.bound > limit) return UINT64_MAX;
  p.order = pen_new(count + 1, sizeof *p.order);
  p.here_order = pen_new(count + 1, sizeof *p.here_order);
  p.here_end = pen_new(count + 1, sizeof *p.here_end);
  p.fixed_order = pen_new(count + 1, sizeof *p.fixed_order);
  p.best_offset = pen_new(count + 1, sizeof *p.best_offset);
  p.placed = pen_new(count + 1, sizeof *p.placed);
  sort_by(&p, BY_START, 0, fixed, p.fixed_order);
  sort_by(&p, BY_START, fixed, count, p.order);
  sweep(&p, false);
  if (!is_near(&p)) sweep(&p, true);
  if (count <= QUADRATIC_MAX) search(&p, steps);
  for (size_t i = fixed; i < count; i++) rectangle[i].offset = p.best_offset[i];
  return p.best;
}
