/* pack.c: dynamic storage allocation with known lifetimes: put rectangles (bytes x rows) at offsets
 * so that no two that live at the same time overlap, in as few bytes as we can.
 *
 * The problem is NP-hard (Garey and Johnson, SR2). Rectangles are taken one by one, each put at the
 * lowest offset where it fits among those there (first fit), or into the smallest gap that holds it
 * (best fit). What differs is the order:
 *
 *   start     by first row: exact interval colouring when all sizes are equal (Gupta, Lee and Leung
 * 1979); sweep.c, which serves any number of rectangles. Of those of one row the longest first:
 * what a row keeps then lies below what it only borrows, and what is borrowed next finds the same
 * place size      largest first (TensorFlow Lite Micro's greedy planner; Pisarchyk and Lee, arXiv
 * 2001.03288) area      bytes x rows, largest first (XLA's heap simulator,
 * GlobalDecreasingSizeBestFitHeap's temporal order has it too) rows      longest first
 *
 * The bytes alive in one row are a lower bound, and so is the wall with those above it that are too
 * large to lie below; the first order that comes to it, or to the caller's goal, ends the search.
 * If none does and there are few enough rectangles, each order is climbed from: what ends above the
 * bound is put to the front, as long as that helps; then it is raised by and by, and all are placed
 * anew, until a fixed number of steps (comparisons, and rectangles placed) is spent. The choice is
 * random from a fixed seed. (Exact solvers: Telamalloc, ASPLOS 2022; MiniMalloc, ASPLOS 2023.) */
#include <endian.h>
#include <string.h>

#include "gen/layout/pack.h"
#include "gen/layout/pack_first_fit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/sort.h"

enum { QUADRATIC_MAX = 3000 /* rectangles; above, only sweeps */ };

enum {
  AT_ONCE =
      32 /* rectangles whose lives are compared side by side, as vectors where there are any */
};

/* A placed rectangle's offsets in units, and its rows. */
struct placed {
  uint32_t offset, end, first, last;
};

enum shelf_column { OFFSET, END, FIRST, LAST, SHELF_COLUMNS };

/* A range of offsets, and what lies in it by rising offset: columns, AT_ONCE longer than need be.
 * Two: below the wall, and above. */
struct shelf {
  uint32_t offset, end;
  uint32_t *column[SHELF_COLUMNS]; /* as struct placed has them */
  size_t count;
};

struct packing {
  struct pen_packing base;
  uint64_t bound, goal;
  uint32_t floor;              /* the end of the fixed ones */
  uint32_t *order;             /* of those to be placed */
  uint64_t *best_offset, best; /* of all tries */
  uint64_t *here_end, here;    /* of the climb at hand: ends, total */
  uint32_t *here_order, *rest;
  struct pen_keyed *rank, *sorted; /* what rectangles are sorted by */
  uint32_t *fixed[SHELF_COLUMNS];  /* by rising offset */
  struct shelf shelf[2];
  struct pen_sweep *sweep;
  size_t steps;
};

/* ---- one rectangle ---- */

static void insert(struct shelf *shelf, const struct placed *r) {
  size_t low = 0, high = shelf->count;
  const uint32_t value[SHELF_COLUMNS] = {r->offset, r->end, r->first, r->last};
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (shelf->column[OFFSET][middle] <= r->offset)
      low = middle + 1;
    else
      high = middle;
  }
  for (int n = 0; n < SHELF_COLUMNS; n++) {
    memmove(&shelf->column[n][low + 1], &shelf->column[n][low],
            (shelf->count - low) * sizeof **shelf->column);
    shelf->column[n][low] = value[n];
  }
  shelf->count++;
}

/* Which of AT_ONCE rectangles live in some row from first to last: a bit each. Rows are below 2^31.
 */
static uint32_t find_met(const uint32_t *first_row, const uint32_t *last_row, uint32_t first,
                         uint32_t last) {
  uint8_t met[AT_ONCE];
  uint32_t bits = 0;
  for (int i = 0; i < AT_ONCE; i++)
    met[i] = ((int32_t)last_row[i] >= (int32_t)first) & ((int32_t)first_row[i] <= (int32_t)last);
  for (int i = 0; i < AT_ONCE; i += 8) {
    uint64_t eight;
    memcpy(&eight, &met[i], sizeof eight);
    bits |= (uint32_t)(le64toh(eight) * 0x0102040810204080u >> 56)
            << i; /* a bit a byte, side by side */
  }
  return bits;
}

/* The place on a shelf of `size` units among those that live while they do, where less than *waste
 * is left beside it; UINT32_MAX: none. */
static uint32_t find_place(struct packing *p, const struct shelf *shelf, uint32_t size,
                           uint32_t first, uint32_t last, bool best_fit, uint32_t *waste) {
  uint32_t offset = shelf->offset, found = UINT32_MAX;
  for (size_t from = 0; from <= shelf->count; from += AT_ONCE) {
    size_t past = from + AT_ONCE < shelf->count ? from + AT_ONCE : shelf->count;
    uint32_t met = find_met(&shelf->column[FIRST][from], &shelf->column[LAST][from], first, last);
    if (past - from < AT_ONCE) met &= (1u << (past - from)) - 1;
    p->steps += past - from;
    while (met || past == shelf->count) {
      size_t at = from + (met ? (size_t)__builtin_ctz(met) : 0);
      uint32_t gap_end = met ? shelf->column[OFFSET][at] : shelf->end;
      if (gap_end > offset && gap_end - offset >= size && gap_end - offset - size < *waste) {
        found = offset;
        *waste = gap_end - offset - size;
        if (!best_fit) return found;
      }
      if (!met) break;
      if (shelf->column[END][at] > offset) offset = shelf->column[END][at];
      met &= met - 1;
    }
  }
  return found;
}

/* Places one rectangle; returns its end in units. */
static uint32_t place(struct packing *p, struct pen_rectangle *r, bool best_fit) {
  uint32_t size = pen_units(&p->base, r->bytes), waste = UINT32_MAX, offset = UINT32_MAX;
  if (size <= p->base.wall)
    offset = find_place(p, &p->shelf[0], size, r->first, r->last, best_fit, &waste);
  if (offset == UINT32_MAX || best_fit) {
    uint32_t above = find_place(p, &p->shelf[1], size, r->first, r->last, best_fit, &waste);
    if (above != UINT32_MAX) offset = above;
  }
  insert(&p->shelf[offset >= p->base.wall],
         &(struct placed){offset, offset + size, r->first, r->last});
  r->offset = offset * p->base.unit;
  return offset + size;
}

/* ---- one order ---- */

static void keep_if_best(struct packing *p, uint32_t units) {
  uint64_t total = units * p->base.unit;
  size_t fixed = p->base.fixed, count = p->base.count;
  const struct pen_rectangle *rectangle = p->base.rectangle;
  for (size_t i = fixed; total < p->best && i < count; i++) p->best_offset[i] = rectangle[i].offset;
  if (total < p->best) p->best = total;
  if (total > p->here) return;
  p->here = total;
  memcpy(p->here_order, p->order, (count - fixed) * sizeof *p->order);
  for (size_t i = fixed; i < count; i++) p->here_end[i] = rectangle[i].offset + rectangle[i].bytes;
}

/* Rectangles in any order; given up, if it may be, once they take no less than the best. */
static void place_all(struct packing *p, bool best_fit, bool give_up) {
  uint32_t total = p->floor;
  for (int n = 0; n < SHELF_COLUMNS; n++)
    memcpy(p->shelf[0].column[n], p->fixed[n], p->base.fixed * sizeof **p->fixed);
  p->shelf[0].count = p->base.fixed;
  p->shelf[1].count = 0;
  p->steps += p->base.count - p->base.fixed; /* there may be nothing to compare them with */
  for (size_t i = 0; i < p->base.count - p->base.fixed; i++) {
    uint32_t end = place(p, &p->base.rectangle[p->order[i]], best_fit);
    if (end > total) total = end;
    if (give_up && total * p->base.unit >= p->best) return;
  }
  keep_if_best(p, total);
}

/* ---- orders ---- */

enum order { BY_SIZE, BY_AREA, BY_ROWS, ORDERS };

/* By the order's key, and among equals by first row; BY_ROWS the largest first. */
static void sort_by(const struct packing *p, enum order order) {
  size_t count = p->base.count - p->base.fixed;
  const struct pen_rectangle *rectangle = p->base.rectangle;
  struct pen_keyed *key = pen_new(count + 1, sizeof *key);
  for (size_t i = 0; i < count; i++) {
    uint32_t index = (uint32_t)(p->base.fixed + i);
    key[i] = (struct pen_keyed){order == BY_ROWS ? ~rectangle[index].bytes : rectangle[index].first,
                                index};
  }
  pen_sort(key, count);
  for (size_t i = 0; i < count; i++) {
    const struct pen_rectangle *r = &rectangle[key[i].index];
    uint64_t rows = (uint64_t)r->last - r->first + 1;
    key[i].key = order == BY_SIZE   ? ~r->bytes
                 : order == BY_AREA ? ~(r->bytes / PEN_ALIGNMENT_BYTES * rows)
                                    : ~rows;
  }
  pen_sort(key, count);
  for (size_t i = 0; i < count; i++) p->order[i] = key[i].index;
  pen_free(key);
}

/* What rectangles are sorted by: first row, and of one row the longer or the larger first; or last
 * row. */
enum row_order { LONGER_FIRST, LARGER_FIRST, LAST_ROW };

static bool comes_before(const struct pen_rectangle *a, const struct pen_rectangle *b,
                         enum row_order order) {
  if (order == LARGER_FIRST) return a->bytes > b->bytes;
  return a->last != b->last ? a->last > b->last : a->bytes > b->bytes;
}

/* Sorts rectangles [from, past): by counting their rows, then among those of one row. */
static void sort_by_row(struct pen_packing *p, size_t from, size_t past, enum row_order order,
                        uint32_t *out) {
  uint32_t *place = pen_new(p->rows + 1u, sizeof *place), before = (uint32_t)from;
  for (size_t i = from; i < past; i++)
    place[order == LAST_ROW ? p->rectangle[i].last : p->rectangle[i].first]++;
  for (uint32_t row = 0; row < p->rows; row++) {
    uint32_t here = place[row];
    place[row] = before;
    before += here;
  }
  for (size_t i = from; i < past; i++)
    out[place[order == LAST_ROW ? p->rectangle[i].last : p->rectangle[i].first]++] = (uint32_t)i;
  pen_free(place);
  for (size_t i = from + 1; i < past && order != LAST_ROW; i++) {
    uint32_t index = out[i];
    const struct pen_rectangle *r = &p->rectangle[index];
    size_t at = i;
    for (; at > from; at--) {
      const struct pen_rectangle *other = &p->rectangle[out[at - 1]];
      if (other->first != r->first || !comes_before(r, other, order)) break;
      out[at] = out[at - 1];
    }
    out[at] = index;
  }
}

/* The most bytes alive in one row, of the rectangles of more than so many units. */
static uint64_t most_alive(const struct pen_packing *p, uint32_t more_than) {
  int64_t *change = pen_new(p->rows + 2u, sizeof *change), alive = 0, most = 0;
  for (size_t i = 0; i < p->count; i++) {
    const struct pen_rectangle *r = &p->rectangle[i];
    if (pen_units(p, r->bytes) <= more_than) continue;
    change[r->first] += (int64_t)r->bytes;
    change[r->last + 1] -= (int64_t)r->bytes;
  }
  for (uint32_t row = 0; row < p->rows; row++) {
    alive += change[row];
    if (alive > most) most = alive;
  }
  pen_free(change);
  return (uint64_t)most;
}

static bool is_near(const struct packing *p) { return p->best <= p->goal || p->best <= p->bound; }

/* ---- repair ---- */

/* Puts what ends above the bound to the front of the order. Returns how many did. */
static size_t promote(struct packing *p) {
  size_t n = p->base.count - p->base.fixed, front = 0, back = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t item = p->here_order[i];
    if (p->here_end[item] > (p->goal > p->bound ? p->goal : p->bound))
      p->order[front++] = item;
    else
      p->rest[back++] = item;
  }
  memcpy(p->order + front, p->rest, back * sizeof *p->rest);
  return front;
}

/* xorshift64: Marsaglia 2003. */
static uint64_t draw(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

/* Raises what ends above the bound, each by as much as chance will, and sorts all by how high they
 * are. */
static void raise(struct packing *p, uint64_t *seed) {
  size_t n = p->base.count - p->base.fixed;
  uint64_t bound = p->goal > p->bound ? p->goal : p->bound;
  for (size_t i = 0; i < n; i++) {
    const struct pen_rectangle *r = &p->base.rectangle[p->order[i]];
    if (r->offset + r->bytes > bound) p->rank[p->order[i]].key -= 1 + draw(seed) % (n / 4 + 1);
    p->sorted[i] = p->rank[p->order[i]];
  }
  pen_sort(p->sorted, n);
  for (size_t i = 0; i < n; i++) p->order[i] = p->sorted[i].index;
}

/* Climbs from one order: while it helps, what ends above the bound is put to the front; then it is
 * raised by and by, until the steps are spent. */
static void climb(struct packing *p, bool best_fit, size_t steps) {
  uint64_t before = UINT64_MAX, seed = 0x9e3779b97f4a7c15u;
  size_t n = p->base.count - p->base.fixed;
  while (!is_near(p) && p->steps < steps && p->here < before) {
    before = p->here;
    if (promote(p)) place_all(p, best_fit, false);
  }
  for (size_t i = 0; i < n; i++)
    p->rank[p->order[i]] = (struct pen_keyed){(UINT64_MAX >> 1) + i, p->order[i]};
  while (!is_near(p) && p->steps < steps) {
    raise(p, &seed);
    place_all(p, best_fit, false);
  }
}

/* Every order but the sweeps', in both ways, with its share of the steps. */
static void search(struct packing *p, size_t steps) {
  enum { WAYS = 2 * ORDERS };
  for (int way = 0; way < WAYS && !is_near(p) && p->steps < steps; way++) {
    p->here = UINT64_MAX;
    sort_by(p, way / 2);
    place_all(p, way % 2, false);
    climb(p, way % 2, p->steps + (steps > p->steps ? steps - p->steps : 0) / (size_t)(WAYS - way));
  }
}

/* ---- the whole ---- */

/* Units are small enough for any offset to be counted in 32 bits. */
static uint64_t unit_of(const struct pen_rectangle *rectangle, size_t fixed, size_t count) {
  uint64_t all = 0, unit = PEN_ALIGNMENT_BYTES;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = rectangle[i].bytes + (i < fixed ? rectangle[i].offset : 0);
    if (__builtin_add_overflow(all, pen_aligned(bytes), &all))
      pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the model is too large");
  }
  while (all / unit + count >= UINT32_MAX) unit *= 2;
  return unit;
}

static struct packing begin(struct pen_rectangle *rectangle, size_t fixed, size_t count,
                            uint64_t wall, uint64_t goal) {
  struct packing p = {.base = {.rectangle = rectangle,
                               .fixed = fixed,
                               .count = count,
                               .unit = unit_of(rectangle, fixed, count)},
                      .goal = goal,
                      .best = UINT64_MAX,
                      .here = UINT64_MAX};
  p.base.wall = pen_units(&p.base, wall);
  for (size_t i = 0; i < count; i++)
    if (rectangle[i].last >= p.base.rows) p.base.rows = rectangle[i].last + 1;
  for (size_t i = 0; i < fixed; i++) {
    uint32_t end = pen_units(&p.base, rectangle[i].offset + rectangle[i].bytes);
    if (end > p.floor) p.floor = end;
  }
  p.bound = most_alive(&p.base, 0);
  if (p.floor * p.base.unit > p.bound) p.bound = p.floor * p.base.unit;
  return p;
}

/* What the sweeps need, and what holds their best. */
static void open(struct packing *p) {
  size_t fixed = p->base.fixed, count = p->base.count;
  p->base.start = pen_new(count + 1, sizeof *p->base.start);
  p->base.end = pen_new(count + 1, sizeof *p->base.end);
  p->best_offset = pen_new(count + 1, sizeof *p->best_offset);
  p->order = pen_new(count + 1, sizeof *p->order);
  p->here_order = pen_new(count + 1, sizeof *p->here_order);
  p->here_end = pen_new(count + 1, sizeof *p->here_end);
  sort_by_row(&p->base, 0, fixed, LONGER_FIRST, p->base.start);
  sort_by_row(&p->base, fixed, count, LAST_ROW, p->base.end);
  p->sweep = pen_sweep_begin(&p->base);
}

/* What other orders need besides. */
static void open_shelves(struct packing *p) {
  size_t fixed = p->base.fixed, count = p->base.count;
  p->rest = pen_new(count + 1, sizeof *p->rest);
  p->rank = pen_new(count + 1, sizeof *p->rank);
  p->sorted = pen_new(count + 1, sizeof *p->sorted);
  p->shelf[0] = (struct shelf){.offset = 0, .end = p->base.wall};
  p->shelf[1] = (struct shelf){.offset = p->base.wall, .end = UINT32_MAX};
  for (int n = 0; n < SHELF_COLUMNS; n++) {
    for (int k = 0; k < 2; k++)
      p->shelf[k].column[n] = pen_new(count + 1 + AT_ONCE, sizeof(uint32_t));
    p->fixed[n] = pen_new(fixed + 1, sizeof(uint32_t));
  }
  for (size_t i = 0; i < fixed; i++) {
    const struct pen_rectangle *r = &p->base.rectangle[p->base.start[i]];
    insert(&p->shelf[0],
           &(struct placed){(uint32_t)(r->offset / p->base.unit),
                            pen_units(&p->base, r->offset + r->bytes), r->first, r->last});
  }
  for (int n = 0; n < SHELF_COLUMNS; n++)
    memcpy(p->fixed[n], p->shelf[0].column[n], fixed * sizeof **p->fixed);
}

static void close(struct packing *p) {
  void *const arrays[] = {p->base.start, p->base.end, p->best_offset, p->order, p->here_order,
                          p->here_end,   p->rest,     p->rank,        p->sorted};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pen_free(arrays[i]);
  for (int n = 0; n < SHELF_COLUMNS; n++) {
    pen_free(p->shelf[0].column[n]);
    pen_free(p->shelf[1].column[n]);
    pen_free(p->fixed[n]);
  }
  pen_sweep_free(p->sweep);
}

static void sweep(struct packing *p, enum row_order order, bool best_fit) {
  sort_by_row(&p->base, p->base.fixed, p->base.count, order, p->base.start);
  uint32_t total = pen_sweep_place(p->sweep, best_fit);
  keep_if_best(p, total > p->floor ? total : p->floor);
}

uint64_t pen_pack(struct pen_rectangle *rectangle, size_t fixed, size_t count, uint64_t wall,
                  uint64_t limit, uint64_t goal, size_t steps) {
  if (!count) return 0;
  struct packing p = begin(rectangle, fixed, count, wall, goal);
  bool few = count <= QUADRATIC_MAX;
  if (p.bound > limit) return UINT64_MAX;
  uint64_t above = most_alive(&p.base, p.base.wall),
           from = p.base.wall * p.base.unit; /* no matter for the limit: cut, they may fit below */
  if (above && from + above > p.bound) p.bound = from + above;
  open(&p);
  sweep(&p, LONGER_FIRST, false);
  if (!is_near(&p) && few) {
    open_shelves(&p);
    sort_by(&p, BY_SIZE);
    place_all(&p, false, steps == 0);
  }
  if (!is_near(&p)) sweep(&p, LARGER_FIRST, false);
  if (!is_near(&p)) sweep(&p, LARGER_FIRST, true);
  if (!is_near(&p) && few) search(&p, steps);
  for (size_t i = fixed; i < count; i++) rectangle[i].offset = p.best_offset[i];
  close(&p);
  return p.best;
}
