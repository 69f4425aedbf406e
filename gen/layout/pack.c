/* pack.c: dynamic storage allocation with known live ranges: gives rectangles (bytes x time)
 * offsets such that no two overlap, in few bytes. Times are indices of actions or ops.
 *
 * The problem is NP-hard (Garey and Johnson, SR2). Rectangles are placed one by one, each at the
 * lowest offset where it fits (first fit), or in the smallest gap that holds it (best fit). The
 * order decides:
 *
 *   first time exact interval colouring if all sizes are equal (Gupta, Lee and Leung 1979); for any
 *              number of rectangles (pack_first_fit.c). Of those that begin at one time the
 *              longest come first, so that they are below those that end soon
 *   size       largest first (TensorFlow Lite Micro's greedy planner; Pisarchyk and Lee, arXiv
 *              2001.03288)
 *   area       bytes x duration, largest first (XLA's GlobalDecreasingSizeBestFitHeap)
 *   duration   longest first
 *
 * The bytes live at one time are a lower bound, and so is the region limit plus what is too large
 * to be below it; an order that reaches the bound or the caller's goal ends the search. If none
 * does and there are few rectangles, each order is improved: the rectangles that end above the
 * bound move to the front as long as that helps; then they move forward at random (from a fixed
 * seed) and all are placed again, for a fixed number of steps (comparisons, and rectangles placed).
 * (Exact solvers: Telamalloc, ASPLOS 2022; MiniMalloc, ASPLOS 2023.) */
#include <endian.h>
#include <string.h>

#include "gen/layout/pack.h"
#include "gen/layout/pack_first_fit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/sort.h"

enum { QUADRATIC_MAX = 3000 /* rectangles; with more, only the order of first times is tried */ };

enum {
  AT_ONCE = 32 /* rectangles that are compared at once, as vectors if the machine has any */
};

/* A placed rectangle's offsets in units, and its times. */
struct placed {
  uint32_t offset, end, first, last;
};

enum region_column { OFFSET, END, FIRST, LAST, REGION_COLUMNS };

/* A range of offsets and the rectangles in it by rising offset, as columns with AT_ONCE more
 * entries. There are two: below the region limit, and above. */
struct pack_region {
  uint32_t offset, end;
  uint32_t *column[REGION_COLUMNS]; /* as struct placed has them */
  size_t count;
};

struct packing {
  struct pen_packing base;
  uint64_t bound, goal;
  uint32_t floor;                  /* the end of the fixed ones */
  uint32_t *order;                 /* of those to be placed */
  uint64_t *best_offset, best;     /* of all orders */
  uint64_t *climb_end, climb_best; /* of the climb from one order: ends, total */
  uint32_t *climb_order, *rest;
  struct pen_keyed *rank, *sorted; /* the keys of the sort */
  uint32_t *fixed[REGION_COLUMNS]; /* by rising offset */
  struct pack_region region[2];
  struct pen_sweep *sweep;
  size_t steps;
};

/* ---- one rectangle ---- */

static void insert_placed(struct pack_region *region, const struct placed *r) {
  size_t low = 0, high = region->count;
  const uint32_t value[REGION_COLUMNS] = {r->offset, r->end, r->first, r->last};
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (region->column[OFFSET][middle] <= r->offset)
      low = middle + 1;
    else
      high = middle;
  }
  for (int n = 0; n < REGION_COLUMNS; n++) {
    memmove(&region->column[n][low + 1], &region->column[n][low],
            (region->count - low) * sizeof **region->column);
    region->column[n][low] = value[n];
  }
  region->count++;
}

/* Which of AT_ONCE rectangles overlap first..last in time: one bit each. Times are below 2^31. */
static uint32_t find_overlaps(const uint32_t *first_time, const uint32_t *last_time, uint32_t first,
                              uint32_t last) {
  uint8_t overlaps[AT_ONCE];
  uint32_t bits = 0;
  for (int i = 0; i < AT_ONCE; i++)
    overlaps[i] =
        ((int32_t)last_time[i] >= (int32_t)first) & ((int32_t)first_time[i] <= (int32_t)last);
  for (int i = 0; i < AT_ONCE; i += 8) {
    uint64_t eight;
    memcpy(&eight, &overlaps[i], sizeof eight);
    bits |= (uint32_t)(le64toh(eight) * 0x0102040810204080u >> 56)
            << i; /* a bit a byte, side by side */
  }
  return bits;
}

/* The offset in a region for `size` units, among rectangles that overlap it in time, where
 * less than *waste is left beside it; UINT32_MAX: none. */
static uint32_t find_place(struct packing *p, const struct pack_region *region, uint32_t size,
                           uint32_t first, uint32_t last, bool best_fit, uint32_t *waste) {
  uint32_t offset = region->offset, found = UINT32_MAX;
  for (size_t from = 0; from <= region->count; from += AT_ONCE) {
    size_t past = from + AT_ONCE < region->count ? from + AT_ONCE : region->count;
    uint32_t overlaps =
        find_overlaps(&region->column[FIRST][from], &region->column[LAST][from], first, last);
    if (past - from < AT_ONCE) overlaps &= (1u << (past - from)) - 1;
    p->steps += past - from;
    while (overlaps || past == region->count) {
      size_t at = from + (overlaps ? (size_t)__builtin_ctz(overlaps) : 0);
      uint32_t gap_end = overlaps ? region->column[OFFSET][at] : region->end;
      if (gap_end > offset && gap_end - offset >= size && gap_end - offset - size < *waste) {
        found = offset;
        *waste = gap_end - offset - size;
        if (!best_fit) return found;
      }
      if (!overlaps) break;
      if (region->column[END][at] > offset) offset = region->column[END][at];
      overlaps &= overlaps - 1;
    }
  }
  return found;
}

/* Places one rectangle; returns its end in units. */
static uint32_t place_in_region(struct packing *p, struct pen_rectangle *r, bool best_fit) {
  uint32_t size = pen_units(&p->base, r->bytes), waste = UINT32_MAX, offset = UINT32_MAX;
  if (size <= p->base.limit)
    offset = find_place(p, &p->region[0], size, r->first, r->last, best_fit, &waste);
  if (offset == UINT32_MAX || best_fit) {
    uint32_t above = find_place(p, &p->region[1], size, r->first, r->last, best_fit, &waste);
    if (above != UINT32_MAX) offset = above;
  }
  insert_placed(&p->region[offset >= p->base.limit],
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
  if (total > p->climb_best) return;
  p->climb_best = total;
  memcpy(p->climb_order, p->order, (count - fixed) * sizeof *p->order);
  for (size_t i = fixed; i < count; i++) p->climb_end[i] = rectangle[i].offset + rectangle[i].bytes;
}

/* Places all in the order; may give up once they take no less than the best. */
static void place_all(struct packing *p, bool best_fit, bool give_up) {
  uint32_t total = p->floor;
  for (int n = 0; n < REGION_COLUMNS; n++)
    memcpy(p->region[0].column[n], p->fixed[n], p->base.fixed * sizeof **p->fixed);
  p->region[0].count = p->base.fixed;
  p->region[1].count = 0;
  p->steps += p->base.count - p->base.fixed; /* even if nothing is compared */
  for (size_t i = 0; i < p->base.count - p->base.fixed; i++) {
    uint32_t end = place_in_region(p, &p->base.rectangle[p->order[i]], best_fit);
    if (end > total) total = end;
    if (give_up && total * p->base.unit >= p->best) return;
  }
  keep_if_best(p, total);
}

/* ---- orders ---- */

enum order { BY_SIZE, BY_AREA, BY_DURATION, ORDERS };

/* By the key of the order, and among equals by first time; BY_DURATION the largest first. */
static void sort_by(const struct packing *p, enum order order) {
  size_t count = p->base.count - p->base.fixed;
  const struct pen_rectangle *rectangle = p->base.rectangle;
  struct pen_keyed *key = pen_new(count + 1, sizeof *key);
  for (size_t i = 0; i < count; i++) {
    uint32_t index = (uint32_t)(p->base.fixed + i);
    key[i] = (struct pen_keyed){
        order == BY_DURATION ? ~rectangle[index].bytes : rectangle[index].first, index};
  }
  pen_sort(key, count);
  for (size_t i = 0; i < count; i++) {
    const struct pen_rectangle *r = &rectangle[key[i].index];
    uint64_t duration = (uint64_t)r->last - r->first + 1;
    key[i].key = order == BY_SIZE   ? ~r->bytes
                 : order == BY_AREA ? ~(r->bytes / PEN_ALIGNMENT_BYTES * duration)
                                    : ~duration;
  }
  pen_sort(key, count);
  for (size_t i = 0; i < count; i++) p->order[i] = key[i].index;
  pen_free(key);
}

/* The key: the first time, and among equals the longer or the larger first; or the last time. */
enum time_order { LONGER_FIRST, LARGER_FIRST, LAST_TIME };

static bool sorts_before(const struct pen_rectangle *a, const struct pen_rectangle *b,
                         enum time_order order) {
  if (order == LARGER_FIRST) return a->bytes > b->bytes;
  return a->last != b->last ? a->last > b->last : a->bytes > b->bytes;
}

/* Sorts rectangles [from, past): by counting, then among equals. */
static void sort_by_time(struct pen_packing *p, size_t from, size_t past, enum time_order order,
                         uint32_t *out) {
  uint32_t *place = pen_new(p->time_count + 1u, sizeof *place), before = (uint32_t)from;
  for (size_t i = from; i < past; i++)
    place[order == LAST_TIME ? p->rectangle[i].last : p->rectangle[i].first]++;
  for (uint32_t time = 0; time < p->time_count; time++) {
    uint32_t count = place[time];
    place[time] = before;
    before += count;
  }
  for (size_t i = from; i < past; i++)
    out[place[order == LAST_TIME ? p->rectangle[i].last : p->rectangle[i].first]++] = (uint32_t)i;
  pen_free(place);
  for (size_t i = from + 1; i < past && order != LAST_TIME; i++) {
    uint32_t index = out[i];
    const struct pen_rectangle *r = &p->rectangle[index];
    size_t at = i;
    for (; at > from; at--) {
      const struct pen_rectangle *other = &p->rectangle[out[at - 1]];
      if (other->first != r->first || !sorts_before(r, other, order)) break;
      out[at] = out[at - 1];
    }
    out[at] = index;
  }
}

/* The most bytes live at one time, of rectangles of more than so many units. */
static uint64_t most_live_units(const struct pen_packing *p, uint32_t more_than) {
  int64_t *change = pen_new(p->time_count + 2u, sizeof *change), live = 0, most = 0;
  for (size_t i = 0; i < p->count; i++) {
    const struct pen_rectangle *r = &p->rectangle[i];
    if (pen_units(p, r->bytes) <= more_than) continue;
    change[r->first] += (int64_t)r->bytes;
    change[r->last + 1] -= (int64_t)r->bytes;
  }
  for (uint32_t time = 0; time < p->time_count; time++) {
    live += change[time];
    if (live > most) most = live;
  }
  pen_free(change);
  return (uint64_t)most;
}

static bool is_good_enough(const struct packing *p) {
  return p->best <= p->goal || p->best <= p->bound;
}

/* ---- improvement ---- */

/* Moves the rectangles that end above the bound to the front of the order; returns their number. */
static size_t move_to_front(struct packing *p) {
  size_t n = p->base.count - p->base.fixed, front = 0, back = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t item = p->climb_order[i];
    if (p->climb_end[item] > (p->goal > p->bound ? p->goal : p->bound))
      p->order[front++] = item;
    else
      p->rest[back++] = item;
  }
  memcpy(p->order + front, p->rest, back * sizeof *p->rest);
  return front;
}

/* xorshift64: Marsaglia 2003. */
static uint64_t next_random(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

/* Moves the rectangles that end above the bound forward, each by a random amount. */
static void raise_randomly(struct packing *p, uint64_t *seed) {
  size_t n = p->base.count - p->base.fixed;
  uint64_t bound = p->goal > p->bound ? p->goal : p->bound;
  for (size_t i = 0; i < n; i++) {
    const struct pen_rectangle *r = &p->base.rectangle[p->order[i]];
    if (r->offset + r->bytes > bound)
      p->rank[p->order[i]].key -= 1 + next_random(seed) % (n / 4 + 1);
    p->sorted[i] = p->rank[p->order[i]];
  }
  pen_sort(p->sorted, n);
  for (size_t i = 0; i < n; i++) p->order[i] = p->sorted[i].index;
}

/* Improves one order until the steps are spent. */
static void climb_from_order(struct packing *p, bool best_fit, size_t steps) {
  uint64_t before = UINT64_MAX, seed = 0x9e3779b97f4a7c15u;
  size_t n = p->base.count - p->base.fixed;
  while (!is_good_enough(p) && p->steps < steps && p->climb_best < before) {
    before = p->climb_best;
    if (move_to_front(p)) place_all(p, best_fit, false);
  }
  for (size_t i = 0; i < n; i++)
    p->rank[p->order[i]] = (struct pen_keyed){(UINT64_MAX >> 1) + i, p->order[i]};
  while (!is_good_enough(p) && p->steps < steps) {
    raise_randomly(p, &seed);
    place_all(p, best_fit, false);
  }
}

/* Every order except first time, with first and best fit, each with its share of the steps. */
static void search_orders(struct packing *p, size_t steps) {
  enum { ORDER_VARIANTS = 2 * ORDERS };
  for (int variant = 0; variant < ORDER_VARIANTS && !is_good_enough(p) && p->steps < steps;
       variant++) {
    p->climb_best = UINT64_MAX;
    sort_by(p, variant / 2);
    place_all(p, variant % 2, false);
    climb_from_order(
        p, variant % 2,
        p->steps + (steps > p->steps ? steps - p->steps : 0) / (size_t)(ORDER_VARIANTS - variant));
  }
}

/* ---- the pass ---- */

/* The unit in which 32 bits count any offset: at most those of the rectangles one above the other,
 * or of those that move above the region limit. */
static uint64_t unit_of(const struct pen_rectangle *rectangle, size_t fixed, size_t count,
                        uint64_t limit) {
  uint64_t all = 0, above = pen_aligned(limit), unit = PEN_ALIGNMENT_BYTES;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = rectangle[i].bytes + (i < fixed ? rectangle[i].offset : 0);
    if (__builtin_add_overflow(all, pen_aligned(bytes), &all) ||
        (i >= fixed && __builtin_add_overflow(above, pen_aligned(bytes), &above)))
      pen_stop(PEN_EXIT_TOPOLOGY, "penstock-gen: the model is too large: " PEN_MODEL_SETTINGS);
  }
  if (above > all) all = above;
  while (all / unit + count >= UINT32_MAX) unit *= 2;
  return unit;
}

static struct packing start_packing_of(struct pen_rectangle *rectangle, size_t fixed, size_t count,
                                       uint64_t limit, uint64_t goal) {
  struct packing p = {.base = {.rectangle = rectangle,
                               .fixed = fixed,
                               .count = count,
                               .unit = unit_of(rectangle, fixed, count, limit)},
                      .goal = goal,
                      .best = UINT64_MAX,
                      .climb_best = UINT64_MAX};
  p.base.limit = pen_units(&p.base, limit);
  for (size_t i = 0; i < count; i++)
    if (rectangle[i].last >= p.base.time_count) p.base.time_count = rectangle[i].last + 1;
  for (size_t i = 0; i < fixed; i++) {
    uint32_t end = pen_units(&p.base, rectangle[i].offset + rectangle[i].bytes);
    if (end > p.floor) p.floor = end;
  }
  p.bound = most_live_units(&p.base, 0);
  if (p.floor * p.base.unit > p.bound) p.bound = p.floor * p.base.unit;
  return p;
}

/* Arrays for the sweeps, and for the best. */
static void allocate_sweep(struct packing *p) {
  size_t fixed = p->base.fixed, count = p->base.count;
  p->base.start = pen_new(count + 1, sizeof *p->base.start);
  p->base.end = pen_new(count + 1, sizeof *p->base.end);
  p->best_offset = pen_new(count + 1, sizeof *p->best_offset);
  p->order = pen_new(count + 1, sizeof *p->order);
  p->climb_order = pen_new(count + 1, sizeof *p->climb_order);
  p->climb_end = pen_new(count + 1, sizeof *p->climb_end);
  sort_by_time(&p->base, 0, fixed, LONGER_FIRST, p->base.start);
  sort_by_time(&p->base, fixed, count, LAST_TIME, p->base.end);
  p->sweep = pen_sweep_begin(&p->base);
}

/* Arrays for the other orders. */
static void allocate_regions(struct packing *p) {
  size_t fixed = p->base.fixed, count = p->base.count;
  p->rest = pen_new(count + 1, sizeof *p->rest);
  p->rank = pen_new(count + 1, sizeof *p->rank);
  p->sorted = pen_new(count + 1, sizeof *p->sorted);
  p->region[0] = (struct pack_region){.offset = 0, .end = p->base.limit};
  p->region[1] = (struct pack_region){.offset = p->base.limit, .end = UINT32_MAX};
  for (int n = 0; n < REGION_COLUMNS; n++) {
    for (int k = 0; k < 2; k++)
      p->region[k].column[n] = pen_new(count + 1 + AT_ONCE, sizeof(uint32_t));
    p->fixed[n] = pen_new(fixed + 1, sizeof(uint32_t));
  }
  for (size_t i = 0; i < fixed; i++) {
    const struct pen_rectangle *r = &p->base.rectangle[p->base.start[i]];
    insert_placed(&p->region[0],
                  &(struct placed){(uint32_t)(r->offset / p->base.unit),
                                   pen_units(&p->base, r->offset + r->bytes), r->first, r->last});
  }
  for (int n = 0; n < REGION_COLUMNS; n++)
    memcpy(p->fixed[n], p->region[0].column[n], fixed * sizeof **p->fixed);
}

static void free_packing(struct packing *p) {
  void *const arrays[] = {p->base.start, p->base.end, p->best_offset, p->order, p->climb_order,
                          p->climb_end,  p->rest,     p->rank,        p->sorted};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pen_free(arrays[i]);
  for (int n = 0; n < REGION_COLUMNS; n++) {
    pen_free(p->region[0].column[n]);
    pen_free(p->region[1].column[n]);
    pen_free(p->fixed[n]);
  }
  pen_sweep_free(p->sweep);
}

static void sweep_in_order(struct packing *p, enum time_order order, bool best_fit) {
  sort_by_time(&p->base, p->base.fixed, p->base.count, order, p->base.start);
  uint32_t total = pen_sweep_place(p->sweep, best_fit);
  keep_if_best(p, total > p->floor ? total : p->floor);
}

uint64_t pen_pack(struct pen_rectangle *rectangle, size_t fixed, size_t count,
                  uint64_t limit_offset, uint64_t limit, uint64_t goal, size_t steps) {
  if (!count) return 0;
  struct packing p = start_packing_of(rectangle, fixed, count, limit_offset, goal);
  bool few = count <= QUADRATIC_MAX;
  if (p.bound > limit) return UINT64_MAX;
  uint64_t above = most_live_units(&p.base, p.base.limit),
           from = p.base.limit *
                  p.base.unit; /* not compared with `limit`: split, they may fit below */
  if (above && from + above > p.bound) p.bound = from + above;
  allocate_sweep(&p);
  sweep_in_order(&p, LONGER_FIRST, false);
  if (!is_good_enough(&p) && few) {
    allocate_regions(&p);
    sort_by(&p, BY_SIZE);
    place_all(&p, false, steps == 0);
  }
  if (!is_good_enough(&p)) sweep_in_order(&p, LARGER_FIRST, false);
  if (!is_good_enough(&p)) sweep_in_order(&p, LARGER_FIRST, true);
  if (!is_good_enough(&p) && few) search_orders(&p, steps);
  for (size_t i = fixed; i < count; i++) rectangle[i].offset = p.best_offset[i];
  free_packing(&p);
  return p.best;
}
