/* balance.c: the partition of a chain into runs with the least greatest cost, exact, by dynamic
 * programming.
 *
 * Of all ways to cut the chain, those with the least greatest time of a stage are wanted: of a
 * stage, not of the sum over a rank's stages, which is no chain's problem; a rank that holds
 * several is busy for no more than that many times the greatest. With t(s, j) the least greatest
 * time of stages 0 ... s that together end before place j,
 *
 *     t(s, j) = min over i < j of max(t(s-1, i), cost of stage s from i to j)
 *
 * (Bokhari 1988, "Partitioning problems in parallel, pipelined, and distributed computing"; Pinar
 * and Aykanat 2004, "Fast optimal load balancing algorithms for 1D partitioning", for the bounds on
 * i and j that follow). i falls from j - 1 and the search ends when the stage's own cost reaches
 * the best found, since it only grows from there. A good partition, found by bisection with stages
 * that take as much as they may, bounds the best from above; within that bound a stage can end no
 * later than when all up to it are as full as can be, and no earlier than when all after it are.
 *
 * Many cuts may share that least: where the head outweighs all else, any division of the rest does.
 * Among them a second pass of the same form takes the least sum of squared stage times (in units of
 * 2^-20 of the greatest, so that sums are exact), which spreads the rest evenly; and of several
 * such the one whose early stages hold more.
 *
 * Cost: stages x ends of a stage within the bound x places that one stage spans within it. */
#include "gen/partition/balance.h"

#include <math.h>

#include "gen/base/arena.h"

enum { SQUARE_BITS = 20, BISECTIONS = 40 };

struct chain {
  const uint32_t *place;
  uint32_t stages, count;
  pen_part_cost *cost;
  const void *context;
  uint32_t *least_end, *last_end; /* [stage]: where it can end within the bound */
};

static double cost_of(const struct chain *c, uint32_t stage, uint32_t i, uint32_t j) {
  return c->cost(c->context, stage, c->place[i], c->place[j]);
}

/* ---- bounds ---- */

/* How far a stage that begins at i gets within a time; at most to `limit`. i itself: nowhere. */
static uint32_t reach(const struct chain *c, uint32_t stage, uint32_t i, uint32_t limit,
                      double time) {
  uint32_t low = i, high = limit; /* low fits */
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (cost_of(c, stage, i, middle) <= time)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* Where a stage that ends at j may begin at the earliest within a time; at least at `limit`. */
static uint32_t reach_back(const struct chain *c, uint32_t stage, uint32_t j, uint32_t limit,
                           double time) {
  uint32_t low = limit, high = j; /* high fits */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (cost_of(c, stage, middle, j) <= time)
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

/* The greatest time of the partition in which each stage takes as much as it may within a time;
 * INFINITY when that is none. */
static double filled(const struct chain *c, double time) {
  double greatest = 0;
  uint32_t i = 0;
  for (uint32_t stage = 0; stage < c->stages; stage++) {
    uint32_t j = stage + 1 < c->stages
                     ? reach(c, stage, i, c->count - (c->stages - 1 - stage), time)
                     : c->count;
    double own = j > i ? cost_of(c, stage, i, j) : INFINITY;
    if (own > time) return INFINITY;
    greatest = fmax(greatest, own);
    i = j;
  }
  return greatest;
}

/* The greatest time of a good partition: from one by number on, ever better ones. */
static double bound_of(const struct chain *c) {
  double low = 0, bound = 0;
  for (uint32_t stage = 0; stage < c->stages; stage++) {
    uint32_t i = (uint32_t)((uint64_t)stage * c->count / c->stages),
             j = (uint32_t)((stage + 1ull) * c->count / c->stages);
    bound = fmax(bound, cost_of(c, stage, i, j));
  }
  for (int round = 0; round < BISECTIONS && low < bound; round++) {
    double middle = low + (bound - low) / 2, found = filled(c, middle);
    if (found < bound)
      bound = found;
    else
      low = middle;
  }
  return bound;
}

/* Where each stage can end when none may take longer than the bound. */
static void limit_ends(struct chain *c, double bound) {
  c->least_end = pen_new(c->stages, sizeof *c->least_end);
  c->last_end = pen_new(c->stages, sizeof *c->last_end);
  uint32_t at = 0;
  for (uint32_t stage = 0; stage < c->stages; stage++) {
    uint32_t limit =
        c->count - (c->stages - 1 - stage); /* every later stage needs a place of its own */
    at = c->last_end[stage] = at < limit ? reach(c, stage, at, limit, bound) : limit;
  }
  at = c->count;
  for (uint32_t stage = c->stages; stage-- > 0;) {
    c->least_end[stage] = at > stage + 1 ? at : stage + 1;
    at = reach_back(c, stage, at, at < stage ? at : stage, bound);
  }
}

/* ---- the two passes ---- */

/* The least greatest time. */
static double least_greatest(const struct chain *c) {
  double *before = pen_new(c->count + 1u, sizeof *before),
         *now = pen_new(c->count + 1u, sizeof *now);
  for (uint32_t j = c->least_end[0]; j <= c->last_end[0]; j++) now[j] = cost_of(c, 0, 0, j);
  for (uint32_t stage = 1; stage < c->stages; stage++) {
    double *swap = before;
    before = now;
    now = swap;
    for (uint32_t j = c->least_end[stage]; j <= c->last_end[stage]; j++) {
      now[j] = INFINITY;
      uint32_t latest = j - 1 < c->last_end[stage - 1] ? j - 1 : c->last_end[stage - 1];
      for (uint32_t i = latest + 1; i-- > c->least_end[stage - 1];) {
        double own = cost_of(c, stage, i, j);
        if (own >= now[j]) break;
        now[j] = fmin(now[j], fmax(before[i], own));
      }
    }
  }
  return now[c->count];
}

static uint64_t squared(double cost, double greatest) {
  uint64_t part = greatest > 0 ? (uint64_t)llround(ldexp(cost / greatest, SQUARE_BITS)) : 0;
  return part * part;
}

/* The cuts within the greatest time whose squares add up to least. */
static void least_squares(const struct chain *c, double greatest, uint32_t *first) {
  uint64_t *before = pen_new(c->count + 1u, sizeof *before),
           *now = pen_new(c->count + 1u, sizeof *now);
  uint32_t **from =
      pen_new(c->stages, sizeof *from); /* [stage][end - least end]: where that stage begins */
  for (uint32_t j = c->least_end[0]; j <= c->last_end[0]; j++) {
    double own = cost_of(c, 0, 0, j);
    now[j] = own <= greatest ? squared(own, greatest) : UINT64_MAX;
  }
  for (uint32_t stage = 1; stage < c->stages; stage++) {
    uint32_t least = c->least_end[stage], last = c->last_end[stage],
             least_before = c->least_end[stage - 1];
    uint64_t *swap = before;
    before = now;
    now = swap;
    from[stage] = pen_new(last - least + 1u, sizeof **from);
    for (uint32_t j = least; j <= last; j++) {
      now[j] = UINT64_MAX;
      uint32_t latest = j - 1 < c->last_end[stage - 1] ? j - 1 : c->last_end[stage - 1];
      for (uint32_t i = latest + 1; i-- > least_before;) {
        double own = cost_of(c, stage, i, j);
        if (own > greatest) break;
        uint64_t sum = before[i] == UINT64_MAX ? UINT64_MAX : before[i] + squared(own, greatest);
        if (sum >= now[j]) continue;
        now[j] = sum;
        from[stage][j - least] = i;
      }
    }
  }
  uint32_t end = c->count;
  for (uint32_t stage = c->stages; stage-- > 0;) {
    end = stage ? from[stage][end - c->least_end[stage]] : 0;
    first[stage] = c->place[end];
  }
}

void pen_balance(uint32_t stages, const uint32_t *place, uint32_t count, pen_part_cost *cost,
                 const void *context, uint32_t *first) {
  struct chain chain = {
      .place = place, .stages = stages, .count = count, .cost = cost, .context = context};
  limit_ends(&chain, bound_of(&chain));
  double greatest = least_greatest(&chain);
  limit_ends(&chain, greatest);
  least_squares(&chain, greatest, first);
}
