/* balance.c: divides a chain into consecutive parts with the least maximum cost, exactly, by
 * dynamic programming.
 *
 * The result minimises the time of the slowest stage: of a single stage, not of the sum over a
 * rank's stages, which is not a chain problem: see the last part. Let t(s, j) be the least maximum
 * time of stages 0 ... s that together end before place j. Then
 *
 *     t(s, j) = min over i < j of max(t(s-1, i), cost of stage s from i to j)
 *
 * (Bokhari 1988, "Partitioning problems in parallel, pipelined, and distributed computing"; Pinar
 * and Aykanat 2004, "Fast optimal load balancing algorithms for 1D partitioning", for the bounds on
 * i and j). i decreases from j - 1, and the search ends when the stage's own cost reaches the best
 * result, since it only grows from there. A good partition, found by bisection with stages that
 * take as much as they may, is an upper bound. Within that bound a stage ends no later than when
 * all stages up to it are as full as possible, and no earlier than when all later stages are.
 *
 * Many partitions may have the same maximum, for example where the head costs more than all else.
 * Among them a second pass of the same form takes the least sum of squared stage times, in units of
 * 2^-20 of the maximum, so that sums are exact; this spreads the rest evenly. Of several such it
 * takes the one whose early stages hold more.
 *
 * Cost: stages x possible ends of a stage x possible lengths of a stage, within the bound. */
#include "gen/partition/balance.h"

#include <math.h>

#include "gen/base/arena.h"

enum { SQUARE_BITS = 20, BISECTIONS = 40, RANK_POWER = 16, MOVE_WORK = 1 << 20 };
#define STAGE_WEIGHT 0.02
#define LEAST_GAIN 1e-9

struct chain {
  const uint32_t *place;
  uint32_t stages, count;
  pen_part_cost *cost;
  const void *context;
  uint32_t *least_end, *last_end; /* [stage]: first and last possible end within the bound */
};

static double part_cost_of(const struct chain *c, uint32_t stage, uint32_t i, uint32_t j) {
  return c->cost(c->context, stage, c->place[i], c->place[j]);
}

/* ---- bounds ---- */

/* How far, up to `limit`, a stage reaches that begins at i and takes at most `time`; i: not at all.
 * With a limit below i: which ends at i, backwards. */
static uint32_t reach(const struct chain *c, uint32_t stage, uint32_t i, uint32_t limit,
                      double time) {
  const bool back = limit < i;
  uint32_t near = i, far = limit; /* near fits */
  while (near != far) {
    const uint32_t step = ((back ? near - far : far - near) + 1) / 2,
                   middle = back ? near - step : near + step;
    if (part_cost_of(c, stage, back ? middle : i, back ? i : middle) <= time)
      near = middle;
    else
      far = back ? middle + 1 : middle - 1;
  }
  return near;
}

/* The maximum time of the partition in which each stage takes as much as it may within `time`;
 * INFINITY: there is none. */
static double greedy_maximum(const struct chain *c, double time) {
  double maximum = 0;
  uint32_t i = 0;
  for (uint32_t stage = 0; stage < c->stages; stage++) {
    uint32_t j = stage + 1 < c->stages
                     ? reach(c, stage, i, c->count - (c->stages - 1 - stage), time)
                     : c->count;
    double own = j > i ? part_cost_of(c, stage, i, j) : INFINITY;
    if (own > time) return INFINITY;
    maximum = fmax(maximum, own);
    i = j;
  }
  return maximum;
}

/* The maximum time of a good partition: starts from equal counts and improves it by bisection. */
static double bisected_bound(const struct chain *c) {
  double low = 0, bound = 0;
  for (uint32_t stage = 0; stage < c->stages; stage++) {
    uint32_t i = (uint32_t)((uint64_t)stage * c->count / c->stages),
             j = (uint32_t)((stage + 1ull) * c->count / c->stages);
    bound = fmax(bound, part_cost_of(c, stage, i, j));
  }
  for (int round = 0; round < BISECTIONS && low < bound; round++) {
    double middle = low + (bound - low) / 2, found = greedy_maximum(c, middle);
    if (found < bound)
      bound = found;
    else
      low = middle;
  }
  return bound;
}

/* Sets the possible ends of each stage when none may take longer than the bound. */
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
    at = reach(c, stage, at, at < stage ? at : stage, bound);
  }
}

/* ---- the two passes ---- */

/* The least maximum time. */
static double least_maximum(const struct chain *c) {
  double *before = pen_new(c->count + 1u, sizeof *before),
         *now = pen_new(c->count + 1u, sizeof *now);
  for (uint32_t j = c->least_end[0]; j <= c->last_end[0]; j++) now[j] = part_cost_of(c, 0, 0, j);
  for (uint32_t stage = 1; stage < c->stages; stage++) {
    double *swap = before;
    before = now;
    now = swap;
    for (uint32_t j = c->least_end[stage]; j <= c->last_end[stage]; j++) {
      now[j] = INFINITY;
      uint32_t latest = j - 1 < c->last_end[stage - 1] ? j - 1 : c->last_end[stage - 1];
      for (uint32_t i = latest + 1; i-- > c->least_end[stage - 1];) {
        double own = part_cost_of(c, stage, i, j);
        if (own >= now[j]) break;
        now[j] = fmin(now[j], fmax(before[i], own));
      }
    }
  }
  return now[c->count];
}

static uint64_t squared(double cost, double maximum) {
  uint64_t part = maximum > 0 ? (uint64_t)llround(ldexp(cost / maximum, SQUARE_BITS)) : 0;
  return part * part;
}

/* The partition within the maximum time that has the least sum of squares. */
static void least_squares(const struct chain *c, double maximum, uint32_t *first) {
  uint64_t *before = pen_new(c->count + 1u, sizeof *before),
           *now = pen_new(c->count + 1u, sizeof *now);
  uint32_t **from =
      pen_new(c->stages, sizeof *from); /* [stage][end - least end]: the start of that stage */
  for (uint32_t j = c->least_end[0]; j <= c->last_end[0]; j++) {
    double own = part_cost_of(c, 0, 0, j);
    now[j] = own <= maximum ? squared(own, maximum) : UINT64_MAX;
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
        double own = part_cost_of(c, stage, i, j);
        if (own > maximum) break;
        uint64_t sum = before[i] == UINT64_MAX ? UINT64_MAX : before[i] + squared(own, maximum);
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
  limit_ends(&chain, bisected_bound(&chain));
  double maximum = least_maximum(&chain);
  limit_ends(&chain, maximum);
  least_squares(&chain, maximum, first);
}

/* ---- ranks with several stages ----
 *
 * A local search: a move shifts the starts of consecutive stages by one place. It minimises the
 * mean of the 16th powers of the ranks' times over their mean, a smooth form of the maximum, plus
 * a small part of the mean square of the stages' times: equal stages wait less for each other. */

struct rank_chain {
  struct chain chain;
  const uint32_t *rank_of;
  uint32_t ranks, *at; /* [stages + 1]: the place at which each stage begins; the end */
  double *load;        /* [ranks] */
};

/* Of the partition that moves the starts of stages first ... last by `by` places. INFINITY: that
 * leaves a stage without a place. */
static double unevenness(struct rank_chain *l, uint32_t first, uint32_t last, int by) {
  const struct chain *c = &l->chain;
  double total = 0, worst = 0, stages = 0;
  for (uint32_t r = 0; r < l->ranks; r++) l->load[r] = 0;
  for (uint32_t s = 0; s < c->stages; s++) {
    const int64_t begin = (int64_t)l->at[s] + (s >= first && s <= last ? by : 0),
                  end = (int64_t)l->at[s + 1] + (s + 1 >= first && s + 1 <= last ? by : 0);
    if (end <= begin) return INFINITY;
    const double cost = part_cost_of(c, s, (uint32_t)begin, (uint32_t)end);
    l->load[l->rank_of[s]] += cost;
    total += cost;
    stages += cost * cost;
  }
  for (uint32_t r = 0; r < l->ranks; r++) worst += pow(l->load[r] * l->ranks / total, RANK_POWER);
  return worst / l->ranks + STAGE_WEIGHT * stages * c->stages / (total * total);
}

/* Makes the best move; false: none is better. */
static bool move_starts(struct rank_chain *l, double *least) {
  const uint32_t stages = l->chain.stages,
                 longest = 1 + (uint32_t)(MOVE_WORK / ((uint64_t)stages * stages));
  const double bound = *least * (1 - LEAST_GAIN);
  uint32_t first = 0, last = 0;
  int by = 0;
  for (uint32_t i = 1; i < stages; i++)
    for (uint32_t j = i; j < stages && j - i < longest; j++)
      for (int step = -1; step <= 1; step += 2) {
        const double found = unevenness(l, i, j, step);
        if (found >= fmin(bound, *least)) continue;
        *least = found;
        first = i;
        last = j;
        by = step;
      }
  for (uint32_t s = first; by && s <= last; s++) l->at[s] = (uint32_t)((int64_t)l->at[s] + by);
  return by != 0;
}

void pen_balance_ranks(uint32_t stages, const uint32_t *rank_of, uint32_t ranks,
                       const uint32_t *place, uint32_t count, pen_part_cost *cost,
                       const void *context, uint32_t *first) {
  struct rank_chain l = {
      .chain = {.place = place, .stages = stages, .count = count, .cost = cost, .context = context},
      .rank_of = rank_of,
      .ranks = ranks,
      .at = pen_new(stages + 1u, sizeof *l.at),
      .load = pen_new(ranks, sizeof *l.load)};
  for (uint32_t s = 0, p = 0; s < stages; s++) {
    while (place[p] != first[s]) p++;
    l.at[s] = p;
  }
  l.at[stages] = count;
  double least = unevenness(&l, 1, 0, 0);
  while (move_starts(&l, &least)) continue;
  for (uint32_t s = 0; s < stages; s++) first[s] = place[l.at[s]];
}
