/* side.c: the search on one placement (see side.h). */
#include "gen/search/side.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/search/anneal.h"
#include "gen/search/list_schedule.h"
#include "gen/timing/lower_bound.h"
#include "runtime/plan/plan.h"

/* A round: its share of the work, and its temperature as a fraction of the mean cost of an action,
 * or 0: it improves the rule of a list schedule (seeds.c). */
static const struct round {
  double share, temperature;
} rounds[] = {{0.06, 0.005}, {0.08, 0.015}, {0.1, 0.03}, {0.4, 0}, {0.36, 0.065}};
_Static_assert(sizeof rounds / sizeof *rounds == PEN_SEARCH_ROUNDS, "one second");

double pen_search_side_value(const struct pen_search_side *side, const struct pen_timing *timing) {
  return side->search->by_span ? timing->span : timing->makespan;
}

double pen_search_side_named_value(const struct pen_search_side *side,
                                   const struct pen_search_named *named) {
  return named->p99 > 0 ? named->p99 : pen_search_side_value(side, named->timing);
}

bool pen_search_side_is_better(const struct pen_search_side *side,
                               const struct pen_timing *timing) {
  if (!side->timing) return true;
  double one = pen_search_side_value(side, timing),
         other = pen_search_side_value(side, side->timing);
  double rest = timing->makespan + timing->span - one,
         other_rest = side->timing->makespan + side->timing->span - other;
  if (fabs(one - other) > 1e-12 * fabs(other)) return one < other;
  return rest < other_rest - 1e-12 * fabs(other_rest);
}

/* Takes the lists as the best of the side if they are better. */
static void take_if_better(struct pen_search_side *side, const uint32_t *list, const char *from) {
  const struct pen_search_problem *c = side->search;
  struct pen_order *order = pen_search_order(c, list);
  const struct pen_timing *timing = pen_search_time(c, order, -1);
  pen_search_progress_order(side->progress, timing);
  if (!pen_search_side_is_better(side, timing)) return;
  side->order = order;
  side->timing = timing;
  side->from = from;
  side->is_named = false;
  if (!side->best) side->best = pen_new((size_t)c->rank_count * c->count, sizeof *side->best);
  memcpy(side->best, list, (size_t)c->rank_count * c->count * sizeof *list);
}

/* F, I and W of every stage and microbatch, in an arbitrary order; B where there is never memory
 * for I and W. The bounds of these actions also hold for orders with more B: replace each B by I
 * and then W, and nothing ends later and nothing is held longer. The cost of W is what it adds to
 * B. */
static struct pen_order *any_order(const struct pen_search_problem *c) {
  uint32_t *list = pen_new((size_t)c->rank_count * c->count, sizeof *list),
           *next = pen_new(c->rank_count, sizeof *next);
  for (uint32_t cell = 0; cell < c->cell_count; cell++) {
    uint32_t stage = cell / c->microbatch_count % c->stage_count,
             rank = c->partition->rank_of[stage];
    bool weight = cell / c->microbatch_count / c->stage_count == PEN_PROGRAM_W;
    if (!weight || !pen_budget_forces_whole(c->budget, rank, stage))
      list[(size_t)rank * c->count + next[rank]++] = cell;
  }
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    while (next[rank] < c->count) list[(size_t)rank * c->count + next[rank]++] = PEN_NONE;
  struct pen_order *order = pen_search_order(c, list);
  pen_free(list);
  pen_free(next);
  return order;
}

double pen_search_side_bound(const struct pen_search_side *side, const struct pen_order *order,
                             double overlap, bool other) {
  const struct pen_search_problem *c = side->search;
  struct pen_bounds bounds = pen_bounds_of(order, c->partition, c->training, c->least_cost,
                                           c->exchange, overlap, c->budget);
  return c->by_span != other ? bounds.span.greatest : bounds.makespan.greatest;
}

void pen_search_side_take(struct pen_search_side *side, const struct pen_search_named *named) {
  side->order = named->order;
  side->timing = named->timing;
  side->from = named->name;
  side->is_named = true;
}

struct pen_search_side *pen_search_side_start(const struct pen_topology *topology,
                                              const struct pen_search_problem *search,
                                              struct pen_search_progress *progress,
                                              enum pen_placement placement,
                                              const struct pen_search *known, uint64_t work) {
  struct pen_search_side *side = pen_new(1, sizeof *side);
  side->search = search;
  side->placement = placement;
  side->timeline = pen_search_timeline(side->search);
  side->progress = progress;
  pen_search_progress_add(progress, side->timeline);
  side->starts = pen_search_seeds(topology, placement, side->timeline, work);
  if (known && known->placement == placement)
    pen_search_seeds_take(side->starts, side->timeline, known->order, known->start);
  for (uint32_t i = 0; i < side->starts->count; i++)
    take_if_better(side, side->starts->start[i].list, side->starts->start[i].name);
  const struct pen_order *any = any_order(side->search);
  side->bound = pen_search_side_bound(side, any, -1, false);
  side->other_bound = pen_search_side_bound(side, any, -1, true);
  for (size_t i = 0; i < side->starts->named_count; i++) {
    const struct pen_search_named *named = &side->starts->named[i];
    if (named->fits) pen_search_progress_order(progress, named->timing);
    if (named->fits && pen_search_side_is_better(side, named->timing))
      pen_search_side_take(side, named);
  }
  if (side->timing && !progress->by_percentile)
    pen_search_progress_start(progress, side->from, side->timing,
                              pen_search_side_value(side, side->timing));
  return side;
}

static double mean_cost(const struct pen_search_problem *c) {
  double sum = 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) sum += c->work[rank];
  return sum / c->rank_count / c->count;
}

/* Runs one round of annealing from the given lists. */
static void anneal_round(struct pen_search_side *side, const uint32_t *list, const char *from,
                         uint64_t seed, uint64_t work, double temperature) {
  const struct pen_search_problem *c = side->search;
  struct pen_search_value value;
  if (side->timing && pen_search_side_value(side, side->timing) <= side->bound * (1 + 1e-12))
    return;
  if (!pen_search_set(side->timeline, list, &value)) return;
  uint32_t *best = pen_new((size_t)c->rank_count * c->count, sizeof *best);
  struct pen_search_anneal anneal = {.seed = seed,
                                     .work = work,
                                     .temperature = temperature * mean_cost(c),
                                     .good_enough = side->bound * (1 + 1e-12)};
  pen_search_improve(side->timeline, &anneal, value, best);
  take_if_better(side, best, from);
}

/* Improves the rule of a list schedule. */
static void improve_rule(struct pen_search_side *side, uint64_t seed, uint64_t work) {
  struct pen_search_seeds *starts = side->starts;
  if (side->timing && pen_search_side_value(side, side->timing) <= side->bound * (1 + 1e-12))
    return;
  /* A build takes about twice as long as the same number of actions in moves. */
  uint64_t builds = work / (2 * pen_search_build_work(side->search));
  if (pen_search_seeds_add(starts, side->timeline, builds, seed))
    take_if_better(side, side->timeline->list, "list schedule");
}

void pen_search_side_round(struct pen_search_side *side, uint64_t index, uint64_t work,
                           uint64_t seed) {
  if (side->starts->count == 0) return;
  const struct round *round = &rounds[index % PEN_SEARCH_ROUNDS];
  const struct pen_search_seed *start =
      &side->starts->start[index / PEN_SEARCH_ROUNDS % side->starts->count];
  bool fresh = index % PEN_SEARCH_ROUNDS == PEN_SEARCH_ROUNDS - 1;
  seed = (seed + 1) * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u;
  work = (uint64_t)((double)work * round->share);
  if (round->temperature > 0)
    anneal_round(side, fresh ? start->list : side->best, fresh ? start->name : side->from,
                 seed ? seed : 1, work, round->temperature);
  else
    improve_rule(side, seed, work);
}

void pen_search_side_break_ties(struct pen_search_side *side, uint64_t work, uint64_t seed) {
  const struct pen_search_problem *c = side->search;
  struct pen_search_value value;
  if (side->is_named || !side->best || !pen_search_set(side->timeline, side->best, &value)) return;
  uint32_t *best = pen_new((size_t)c->rank_count * c->count, sizeof *best);
  struct pen_search_anneal anneal = {.seed = ~seed,
                                     .work = (uint64_t)((double)work * rounds[0].share),
                                     .temperature = rounds[0].temperature * mean_cost(c),
                                     .good_enough = side->other_bound * (1 + 1e-12),
                                     .breaks_ties = true,
                                     .most = value.greatest * (1 + 1e-13)};
  pen_search_improve(side->timeline, &anneal, value, best);
  take_if_better(side, best, side->from);
}
