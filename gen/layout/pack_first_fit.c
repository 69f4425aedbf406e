/* sweep.c: rectangles (bytes x rows) by first row, each at the lowest offset where it fits, or in
 * the least gap that holds it.
 *
 * Whoever comes later begins no earlier, so all that is in the way of a rectangle is alive in its
 * first row: above the wall a list of gaps, by rising offset, is all there is to know. What ends
 * gives its bytes back before the next row's rectangles are placed. Gaps are few where sizes are
 * few, so n rectangles take little more than the time to sort them.
 *
 * Below the wall lie the fixed ones, whose rows may be yet to come. The range is cut into strips at
 * their edges; each strip has its busy times, and knows at the row at hand until when it is free. A
 * rectangle that fits there needs strips side by side that are free for as long as it lives, and
 * room between others placed there so. */
#include <string.h>

#include "gen/layout/pack_first_fit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"

enum { BLOCK_STRIPS = 32, NOT_FREE = 0 };

/* A range of offsets in units. */
struct range {
  uint32_t offset, end;
};

/* Rows in which fixed rectangles hold a strip. */
struct busy {
  uint32_t first, last;
};

/* At `row` a strip changes. */
struct change {
  uint32_t row, strip;
};

struct pen_sweep {
  const struct pen_packing *p;
  struct range *gap, *guest; /* free above the wall; placed below it */
  size_t gap_count, gap_capacity, guest_count, guest_capacity;
  uint32_t *edge, strip_count; /* strip k: from edge[k] to edge[k + 1] */
  size_t edge_capacity;
  struct busy *busy; /* by strip: [first_busy[k], first_busy[k + 1]), by rising rows, apart */
  uint32_t *first_busy, *busy_count;
  struct change *change; /* by rising rows */
  size_t change_count;
  uint32_t *until; /* [strip]: the first row from the one at hand on in which it is not free */
  uint32_t *most;  /* of each BLOCK_STRIPS strips */
  uint32_t *at;    /* [strip]: its busy time at hand, or the next */
};

/* ---- strips ---- */

/* The first edge that is not below `offset`. */
static uint32_t find_edge(const struct pen_sweep *s, uint32_t edges, uint32_t offset) {
  uint32_t low = 0, high = edges;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (s->edge[middle] < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void add_edge(struct pen_sweep *s, uint32_t *edges, uint32_t offset) {
  uint32_t at = find_edge(s, *edges, offset);
  if (at < *edges && s->edge[at] == offset) return;
  s->edge = pen_grow(s->edge, &s->edge_capacity, *edges + 1u, sizeof *s->edge);
  memmove(&s->edge[at + 1], &s->edge[at], (*edges - at) * sizeof *s->edge);
  s->edge[at] = offset;
  ++*edges;
}

static struct range units_of(const struct pen_packing *p, const struct pen_rectangle *r) {
  return (struct range){(uint32_t)(r->offset / p->unit), pen_units(p, r->offset + r->bytes)};
}

static void cut_strips(struct pen_sweep *s) {
  const struct pen_packing *p = s->p;
  uint32_t edges = 0;
  add_edge(s, &edges, 0);
  add_edge(s, &edges, p->wall);
  for (size_t i = 0; i < p->fixed; i++) {
    struct range range = units_of(p, &p->rectangle[i]);
    if (range.end > p->wall) pen_stop(70, "layout: something fixed lies behind the wall");
    add_edge(s, &edges, range.offset);
    add_edge(s, &edges, range.end);
  }
  s->strip_count = edges - 1;
}

/* The busy times of every strip. */
static void fill_strips(struct pen_sweep *s) {
  const struct pen_packing *p = s->p;
  s->first_busy = pen_new(s->strip_count + 2u, sizeof *s->first_busy);
  s->busy_count = pen_new(s->strip_count + 1u, sizeof *s->busy_count);
  for (int fill = 0; fill < 2; fill++) {
    for (size_t i = 0; i < p->fixed; i++) {
      const struct pen_rectangle *r = &p->rectangle[p->start[i]];
      struct range range = units_of(p, r);
      for (uint32_t k = find_edge(s, s->strip_count, range.offset);
           k < s->strip_count && s->edge[k] < range.end; k++) {
        struct busy *own = fill ? &s->busy[s->first_busy[k]] : NULL;
        uint32_t count = fill ? s->busy_count[k] : 0;
        if (!fill)
          s->first_busy[k + 1]++;
        else if (count && own[count - 1].last + 1 >= r->first)
          own[count - 1].last = r->last > own[count - 1].last ? r->last : own[count - 1].last;
        else
          own[s->busy_count[k]++] = (struct busy){r->first, r->last};
      }
    }
    if (fill) break;
    for (uint32_t k = 0; k < s->strip_count; k++) s->first_busy[k + 1] += s->first_busy[k];
    s->busy = pen_new(s->first_busy[s->strip_count] + 1u, sizeof *s->busy);
  }
}

/* When strips change, sorted by counting. */
static void list_changes(struct pen_sweep *s) {
  uint32_t rows = s->p->rows, *place = pen_new(rows + 2u, sizeof *place);
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t k = 0; k < s->strip_count; k++)
      for (const struct busy *b = &s->busy[s->first_busy[k]], *past = b + s->busy_count[k];
           b < past; b++) {
        if (fill)
          s->change[place[b->first]++] = (struct change){b->first, k};
        else
          place[b->first + 1]++;
        if (b->last + 1 >= rows) continue; /* nothing comes after it */
        if (fill)
          s->change[place[b->last + 1]++] = (struct change){b->last + 1, k};
        else
          place[b->last + 2]++;
      }
    if (fill) break;
    for (uint32_t row = 0; row < rows; row++) place[row + 1] += place[row];
    s->change_count = place[rows];
    s->change = pen_new(s->change_count + 1, sizeof *s->change);
  }
  pen_free(place);
}

struct pen_sweep *pen_sweep_begin(const struct pen_packing *packing) {
  struct pen_sweep *s = pen_new(1, sizeof *s);
  s->p = packing;
  cut_strips(s);
  fill_strips(s);
  list_changes(s);
  s->until = pen_new(s->strip_count + 1u, sizeof *s->until);
  s->most = pen_new(s->strip_count / BLOCK_STRIPS + 1u, sizeof *s->most);
  s->at = pen_new(s->strip_count + 1u, sizeof *s->at);
  return s;
}

void pen_sweep_free(struct pen_sweep *s) {
  void *const arrays[] = {s->gap,        s->guest,      s->edge,   s->busy,
                          s->first_busy, s->busy_count, s->change, s->until,
                          s->most,       s->at,         s};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pen_free(arrays[i]);
}

/* Settles until when a strip is free, at a row in which that changes. */
static void set_strip(struct pen_sweep *s, uint32_t strip, uint32_t row) {
  const struct busy *own = &s->busy[s->first_busy[strip]];
  uint32_t count = s->busy_count[strip], *at = &s->at[strip], block = strip / BLOCK_STRIPS,
           before = s->until[strip];
  while (*at < count && own[*at].last < row) ++*at;
  uint32_t until = *at == count ? UINT32_MAX : own[*at].first > row ? own[*at].first : NOT_FREE;
  s->until[strip] = until;
  if (until >= s->most[block])
    s->most[block] = until;
  else if (before == s->most[block]) {
    s->most[block] = NOT_FREE;
    for (uint32_t k = block * BLOCK_STRIPS; k < s->strip_count && k < (block + 1) * BLOCK_STRIPS;
         k++)
      if (s->until[k] > s->most[block]) s->most[block] = s->until[k];
  }
}

/* ---- where a rectangle fits ---- */

/* The best place so far. */
struct choice {
  uint32_t offset, waste;
  bool found;
};

/* Takes note of a free range; true when there is no need to look on. */
static bool consider(struct choice *choice, uint32_t offset, uint32_t end, uint32_t size,
                     bool best_fit) {
  if (end - offset < size || (choice->found && end - offset - size >= choice->waste)) return false;
  *choice = (struct choice){offset, end - offset - size, true};
  return !best_fit || choice->waste == 0;
}

/* What is free of a range below the wall between its guests. */
static bool consider_run(const struct pen_sweep *s, struct choice *choice, struct range run,
                         uint32_t size, bool best_fit) {
  size_t low = 0, high = s->guest_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (s->guest[middle].end <= run.offset)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t i = low; i < s->guest_count && s->guest[i].offset < run.end; i++) {
    if (s->guest[i].offset > run.offset &&
        consider(choice, run.offset, s->guest[i].offset, size, best_fit))
      return true;
    run.offset = s->guest[i].end;
  }
  return run.offset < run.end && consider(choice, run.offset, run.end, size, best_fit);
}

/* Looks below the wall for strips side by side that are free to the last row. */
static bool consider_strips(const struct pen_sweep *s, struct choice *choice, uint32_t size,
                            uint32_t last, bool best_fit) {
  for (uint32_t k = 0; k < s->strip_count;) {
    if (k % BLOCK_STRIPS == 0 && s->most[k / BLOCK_STRIPS] <= last) {
      k += BLOCK_STRIPS;
      continue;
    }
    if (s->until[k] <= last) {
      k++;
      continue;
    }
    struct range run = {.offset = s->edge[k]};
    while (k < s->strip_count && s->until[k] > last) k++;
    run.end = s->edge[k];
    if (run.end - run.offset >= size && consider_run(s, choice, run, size, best_fit)) return true;
  }
  return false;
}

/* ---- the sweep ---- */

static void insert(struct range *range, size_t *count, size_t at, struct range item) {
  memmove(&range[at + 1], &range[at], (*count - at) * sizeof *range);
  range[at] = item;
  ++*count;
}

static void erase(struct range *range, size_t *count, size_t at) {
  --*count;
  memmove(&range[at], &range[at + 1], (*count - at) * sizeof *range);
}

/* The first range that is not below `offset`. */
static size_t find(const struct range *range, size_t count, uint32_t offset) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (range[middle].offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* What a rectangle had above the wall is free again. */
static void give_back(struct pen_sweep *s, struct range range) {
  size_t at = find(s->gap, s->gap_count, range.offset);
  bool below = at > 0 && s->gap[at - 1].end == range.offset,
       above = s->gap[at].offset == range.end; /* the last gap has no end */
  if (below) s->gap[at - 1].end = above ? s->gap[at].end : range.end;
  if (below && above)
    erase(s->gap, &s->gap_count, at);
  else if (above)
    s->gap[at].offset = range.offset;
  else if (!below) {
    s->gap = pen_grow(s->gap, &s->gap_capacity, s->gap_count + 1, sizeof *s->gap);
    insert(s->gap, &s->gap_count, at, range);
  }
}

static uint32_t place(struct pen_sweep *s, struct pen_rectangle *r, bool best_fit) {
  const struct pen_packing *p = s->p;
  uint32_t size = pen_units(p, r->bytes);
  struct choice choice = {0};
  bool settled = size <= p->wall && consider_strips(s, &choice, size, r->last, best_fit);
  for (size_t i = 0; !settled && i + 1 < s->gap_count; i++)
    settled = consider(&choice, s->gap[i].offset, s->gap[i].end, size, best_fit);
  if (!choice.found) choice.offset = s->gap[s->gap_count - 1].offset;
  struct range range = {choice.offset, choice.offset + size};
  r->offset = range.offset * p->unit;
  if (range.offset < p->wall) {
    s->guest = pen_grow(s->guest, &s->guest_capacity, s->guest_count + 1, sizeof *s->guest);
    insert(s->guest, &s->guest_count, find(s->guest, s->guest_count, range.offset), range);
    return range.end;
  }
  size_t at = find(s->gap, s->gap_count, range.offset);
  s->gap[at].offset = range.end;
  if (s->gap[at].offset == s->gap[at].end) erase(s->gap, &s->gap_count, at);
  return range.end;
}

static void leave(struct pen_sweep *s, const struct pen_rectangle *r) {
  struct range range = units_of(s->p, r);
  if (range.offset < s->p->wall)
    erase(s->guest, &s->guest_count, find(s->guest, s->guest_count, range.offset));
  else
    give_back(s, range);
}

uint32_t pen_sweep_place(struct pen_sweep *s, bool best_fit) {
  const struct pen_packing *p = s->p;
  size_t change = 0, ended = p->fixed;
  uint32_t total = 0;
  s->guest_count = s->gap_count = 0;
  s->gap = pen_grow(s->gap, &s->gap_capacity, 1, sizeof *s->gap);
  s->gap[s->gap_count++] = (struct range){p->wall, UINT32_MAX};
  memset(s->at, 0, s->strip_count * sizeof *s->at);
  memset(s->until, 0, s->strip_count * sizeof *s->until);
  memset(s->most, 0, (s->strip_count / BLOCK_STRIPS + 1) * sizeof *s->most);
  for (uint32_t k = 0; k < s->strip_count; k++) set_strip(s, k, 0);
  for (size_t i = p->fixed; i < p->count; i++) {
    struct pen_rectangle *r = &p->rectangle[p->start[i]];
    for (; p->rectangle[p->end[ended]].last < r->first; ended++)
      leave(s, &p->rectangle[p->end[ended]]);
    for (; change < s->change_count && s->change[change].row <= r->first; change++)
      set_strip(s, s->change[change].strip, r->first);
    uint32_t end = place(s, r, best_fit);
    if (end > total) total = end;
  }
  return total;
}
