/* balance.c: the partition of a chain into runs with the least greatest cost, exact, by dynamic programming.
 *
 * Of all ways to cut the chain, those with the least greatest time of a stage are wanted (of a stage, not of a rank: where ranks hold
 * several stages, the slowest stage still sets the pace at which microbatches pass). With t(s, j) the least greatest time of stages
 * 0 ... s that together end before place j,
 *
 *     t(s, j) = min over i < j of max(t(s-1, i), cost of stage s from i to j)
 *
 * (Bokhari 1988, "Partitioning problems in parallel, pipelined, and distributed computing"; Pinar and Aykanat 2004 survey faster
 * ones). i falls from j - 1 and the search ends when the stage's own cost reaches the best found, since it only grows from there.
 *
 * Many cuts may share that least: where the head outweighs all else, any division of the rest does. Among them a second pass of the
 * same form takes the least sum of squared stage times (in units of 2^-20 of the greatest, so that sums are exact), which spreads the
 * rest evenly; and of several such the one whose early stages hold more.
 *
 * Cost: stages x places x the places that one stage spans within the greatest time. */
#include "gen/balance.h"

#include <math.h>

#include "gen/gen.h"

enum { SQUARE_BITS = 20 };

struct chain {
  const uint32_t *place;
  uint32_t stages, count;
  pen_part_cost *cost;
  const void *context;
};

static double cost_of(const struct chain *c, uint32_t stage, uint32_t i, uint32_t j) {
  return c->cost(c->context, stage, c->place[i], c->place[j]);
}

/* Every later stage needs a place of its own. */
static uint32_t last_end(const struct chain *c, uint32_t stage) { return c->count - (c->stages - 1 - stage); }

/* The least greatest time. */
static double least_greatest(const struct chain *c) {
  double *before = pen_new(c->count + 1u, sizeof *before), *now = pen_new(c->count + 1u, sizeof *now);
  for (uint32_t j = 1; j <= last_end(c, 0); j++) now[j] = cost_of(c, 0, 0, j);
  for (uint32_t stage = 1; stage < c->stages; stage++) {
    double *swap = before;
    before = now;
    now = swap;
    for (uint32_t j = stage + 1; j <= last_end(c, stage); j++) {
      now[j] = INFINITY;
      for (uint32_t i = j; i-- > stage;) {
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
  size_t width = c->count + 1u;
  uint64_t *before = pen_new(width, sizeof *before), *now = pen_new(width, sizeof *now);
  uint32_t *from = pen_new(c->stages * width, sizeof *from); /* [stage][end]: where that stage begins */
  for (uint32_t j = 1; j <= c->count; j++) {
    double own = j <= last_end(c, 0) ? cost_of(c, 0, 0, j) : INFINITY;
    now[j] = own <= greatest ? squared(own, greatest) : UINT64_MAX;
  }
  for (uint32_t stage = 1; stage < c->stages; stage++) {
    uint64_t *swap = before;
    before = now;
    now = swap;
    for (uint32_t j = 0; j <= c->count; j++) now[j] = UINT64_MAX;
    for (uint32_t j = stage + 1; j <= last_end(c, stage); j++)
      for (uint32_t i = j; i-- > stage;) {
        double own = cost_of(c, stage, i, j);
        if (own > greatest) break;
        if (before[i] == UINT64_MAX) continue;
        uint64_t sum = before[i] + squared(own, greatest);
        if (sum >= now[j]) continue;
        now[j] = sum;
        from[stage * width + j] = i;
      }
  }
  uint32_t end = c->count;
  for (uint32_t stage = c->stages; stage-- > 0;) {
    end = from[stage * width + end]; /* 0 of stage 0 */
    first[stage] = c->place[end];
  }
}

void pen_balance(uint32_t stages, const uint32_t *place, uint32_t count, pen_part_cost *cost, const void *context, uint32_t *first) {
  struct chain chain = {place, stages, count, cost, context};
  least_squares(&chain, least_greatest(&chain), first);
}
