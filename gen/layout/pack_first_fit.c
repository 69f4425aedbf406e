/* pack_first_fit.c: rectangles (bytes x time) by first time, each at the lowest offset where it
 * fits, or in the smallest gap that holds it.
 *
 * Later rectangles begin no earlier, so only those live at the first time of a rectangle can
 * overlap it: above the region limit a list of gaps by rising offset suffices. Rectangles that end
 * free their bytes before those of the next time are placed. There are few gaps if there are few
 * sizes, so n rectangles take little more than the time to sort them.
 *
 * Below the limit are the fixed rectangles, whose times may be later. Their edges divide the range
 * into strips. Each strip has a list of busy times, and the time until which it is free. A
 * rectangle fits there in adjacent strips that are free at all its times, between others placed
 * there. */
#include <string.h>

#include "gen/layout/pack_first_fit.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"

enum { BLOCK_STRIPS = 32, NOT_FREE = 0 };

/* A range of offsets in units. */
struct range {
  uint32_t offset, end;
};

/* Times at which fixed rectangles hold a strip. */
struct busy {
  uint32_t first, last;
};

/* A strip changes at `time`. */
struct change {
  uint32_t time, strip;
};

struct pen_sweep {
  const struct pen_packing *p;
  struct range *gap, *placed; /* free above the limit; placed below it */
  size_t gap_count, placed_count;
  uint32_t *edge, strip_count; /* strip k: from edge[k] to edge[k + 1] */
  struct busy *busy; /* by strip: [first_busy[k], first_busy[k + 1]), disjoint, by rising times */
  uint32_t *first_busy, *busy_count;
  struct change *change; /* by rising times */
  size_t change_count;
  uint32_t *until; /* [strip]: the next time at which it is not free */
  uint32_t *most;  /* of each BLOCK_STRIPS strips */
  uint32_t *at;    /* [strip]: its current busy times, or the next */
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
  PEN_RESERVE(s->edge, *edges + 1);
  memmove(&s->edge[at + 1], &s->edge[at], (*edges - at) * sizeof *s->edge);
  s->edge[at] = offset;
  ++*edges;
}

static struct range rectangle_units(const struct pen_packing *p, const struct pen_rectangle *r) {
  return (struct range){(uint32_t)(r->offset / p->unit), pen_units(p, r->offset + r->bytes)};
}

static void cut_strips(struct pen_sweep *s) {
  const struct pen_packing *p = s->p;
  uint32_t edges = 0;
  add_edge(s, &edges, 0);
  add_edge(s, &edges, p->limit);
  for (size_t i = 0; i < p->fixed; i++) {
    struct range range = rectangle_units(p, &p->rectangle[i]);
    if (range.end > p->limit)
      pen_stop(PEN_EXIT_INTERNAL, "layout: a fixed rectangle is above the region limit");
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
      struct range range = rectangle_units(p, r);
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
  uint32_t times = s->p->time_count, *place = pen_new(times + 2u, sizeof *place);
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t k = 0; k < s->strip_count; k++)
      for (const struct busy *b = &s->busy[s->first_busy[k]], *end = b + s->busy_count[k]; b < end;
           b++) {
        if (fill)
          s->change[place[b->first]++] = (struct change){b->first, k};
        else
          place[b->first + 1]++;
        if (b->last + 1 >= times) continue; /* no later rectangle */
        if (fill)
          s->change[place[b->last + 1]++] = (struct change){b->last + 1, k};
        else
          place[b->last + 2]++;
      }
    if (fill) break;
    for (uint32_t time = 0; time < times; time++) place[time + 1] += place[time];
    s->change_count = place[times];
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
  void *const arrays[] = {s->gap,        s->placed,     s->edge,   s->busy,
                          s->first_busy, s->busy_count, s->change, s->until,
                          s->most,       s->at,         s};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pen_free(arrays[i]);
}

/* Sets the time until which a strip is free, at a time at which that changes. */
static void set_strip(struct pen_sweep *s, uint32_t strip, uint32_t time) {
  const struct busy *own = &s->busy[s->first_busy[strip]];
  uint32_t count = s->busy_count[strip], *at = &s->at[strip], block = strip / BLOCK_STRIPS,
           before = s->until[strip];
  while (*at < count && own[*at].last < time) ++*at;
  uint32_t until = *at == count ? UINT32_MAX : own[*at].first > time ? own[*at].first : NOT_FREE;
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

/* The best offset so far. */
struct choice {
  uint32_t offset, waste;
  bool found;
};

/* Considers a gap; true if the search is over. */
static bool consider_gap(struct choice *choice, uint32_t offset, uint32_t end, uint32_t size,
                         bool best_fit) {
  if (end - offset < size || (choice->found && end - offset - size >= choice->waste)) return false;
  *choice = (struct choice){offset, end - offset - size, true};
  return !best_fit || choice->waste == 0;
}

/* Considers the gaps of a range below the limit. */
static bool consider_run(const struct pen_sweep *s, struct choice *choice, struct range run,
                         uint32_t size, bool best_fit) {
  size_t low = 0, high = s->placed_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (s->placed[middle].end <= run.offset)
      low = middle + 1;
    else
      high = middle;
  }
  for (size_t i = low; i < s->placed_count && s->placed[i].offset < run.end; i++) {
    if (s->placed[i].offset > run.offset &&
        consider_gap(choice, run.offset, s->placed[i].offset, size, best_fit))
      return true;
    run.offset = s->placed[i].end;
  }
  return run.offset < run.end && consider_gap(choice, run.offset, run.end, size, best_fit);
}

/* Considers adjacent strips below the limit that are free until the last time. */
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

static void insert_range(struct range *range, size_t *count, size_t at, struct range item) {
  memmove(&range[at + 1], &range[at], (*count - at) * sizeof *range);
  range[at] = item;
  ++*count;
}

static void erase_range(struct range *range, size_t *count, size_t at) {
  --*count;
  memmove(&range[at], &range[at + 1], (*count - at) * sizeof *range);
}

/* The first range that is not below `offset`. */
static size_t find_range(const struct range *range, size_t count, uint32_t offset) {
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

/* Frees the range of a rectangle above the limit. */
static void release_range(struct pen_sweep *s, struct range range) {
  size_t at = find_range(s->gap, s->gap_count, range.offset);
  bool below = at > 0 && s->gap[at - 1].end == range.offset,
       above = s->gap[at].offset == range.end; /* the last gap has no end */
  if (below) s->gap[at - 1].end = above ? s->gap[at].end : range.end;
  if (below && above)
    erase_range(s->gap, &s->gap_count, at);
  else if (above)
    s->gap[at].offset = range.offset;
  else if (!below) {
    PEN_RESERVE(s->gap, s->gap_count + 1);
    insert_range(s->gap, &s->gap_count, at, range);
  }
}

static uint32_t place_at_time(struct pen_sweep *s, struct pen_rectangle *r, bool best_fit) {
  const struct pen_packing *p = s->p;
  uint32_t size = pen_units(p, r->bytes);
  struct choice choice = {0};
  bool settled = size <= p->limit && consider_strips(s, &choice, size, r->last, best_fit);
  for (size_t i = 0; !settled && i + 1 < s->gap_count; i++)
    settled = consider_gap(&choice, s->gap[i].offset, s->gap[i].end, size, best_fit);
  if (!choice.found) choice.offset = s->gap[s->gap_count - 1].offset;
  struct range range = {choice.offset, choice.offset + size};
  r->offset = range.offset * p->unit;
  if (range.offset < p->limit) {
    PEN_RESERVE(s->placed, s->placed_count + 1);
    insert_range(s->placed, &s->placed_count, find_range(s->placed, s->placed_count, range.offset),
                 range);
    return range.end;
  }
  size_t at = find_range(s->gap, s->gap_count, range.offset);
  s->gap[at].offset = range.end;
  if (s->gap[at].offset == s->gap[at].end) erase_range(s->gap, &s->gap_count, at);
  return range.end;
}

static void remove_rectangle(struct pen_sweep *s, const struct pen_rectangle *r) {
  struct range range = rectangle_units(s->p, r);
  if (range.offset < s->p->limit)
    erase_range(s->placed, &s->placed_count, find_range(s->placed, s->placed_count, range.offset));
  else
    release_range(s, range);
}

uint32_t pen_sweep_place(struct pen_sweep *s, bool best_fit) {
  const struct pen_packing *p = s->p;
  size_t change = 0, ended = p->fixed;
  uint32_t total = 0;
  s->placed_count = s->gap_count = 0;
  PEN_RESERVE(s->gap, 1);
  s->gap[s->gap_count++] = (struct range){p->limit, UINT32_MAX};
  memset(s->at, 0, s->strip_count * sizeof *s->at);
  memset(s->until, 0, s->strip_count * sizeof *s->until);
  memset(s->most, 0, (s->strip_count / BLOCK_STRIPS + 1) * sizeof *s->most);
  for (uint32_t k = 0; k < s->strip_count; k++) set_strip(s, k, 0);
  for (size_t i = p->fixed; i < p->count; i++) {
    struct pen_rectangle *r = &p->rectangle[p->start[i]];
    for (; p->rectangle[p->end[ended]].last < r->first; ended++)
      remove_rectangle(s, &p->rectangle[p->end[ended]]);
    for (; change < s->change_count && s->change[change].time <= r->first; change++)
      set_strip(s, s->change[change].strip, r->first);
    uint32_t end = place_at_time(s, r, best_fit);
    if (end > total) total = end;
  }
  return total;
}
