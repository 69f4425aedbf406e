/* search.c: schedule = "search": searches for an order of F, I, W and B.
 *
 * The search starts from every named schedule that suits the topology and keeps within the limit,
 * and from list schedules with many rules (list_schedule.c). Annealing (anneal.c) improves the best
 * of them in rounds of decreasing temperature, until the given work is done or the objective
 * reaches its lower bound. If the placement is not set, both placements start, and the better one
 * continues.
 *
 * Both objectives are searched, independently of each other, whichever is set; the result is the
 * best order of both searches, by the set objective and then by the other. So if two searches that
 * differ only in the objective find the same makespan, they also find the same span, and the
 * reverse. The second search is omitted if the first reaches all bounds.
 *
 * All orders run the microbatches of a stage in ascending order. This loses nothing, since costs do
 * not depend on the microbatch: in any order, let the n-th F (I, W) of each stage be that of
 * microbatch n instead. Its input is then the n-th result of another stage, which is complete no
 * later than n of those results were before, so nothing starts later, and each rank holds as much.
 * Likewise a B that precedes an outstanding W of its stage can be replaced by an I and that W, with
 * the W of its own microbatch in place of the other. (If B computes once what I and W both compute,
 * a B out of order could be better. It is omitted: ascending weight gradients give the same bits as
 * other schedules.)
 *
 * Backwards are split where it helps. An I directly followed by its W ends when their B would end,
 * and its message is earlier. So B is better only where it holds less, because more is kept for W
 * than F left (live_weight above live_backward; memory.recompute), or where it computes something
 * once (struct pen_stage_cost, shared). For such stages list schedules and moves merge and split I
 * and W; all other backwards are split. At the end, an I and the W directly after it become a B if
 * the message of I is not needed earlier: fewer actions, and nothing starts later.
 *
 * The result is never worse, by the objective, than a named schedule: if a named one is better
 * (overlapping pairs can be), it is the result. The same topology, seed and amount of work give the
 * same order. */
#include "gen/search/search.h"

#include <stdio.h>
#include <math.h>

#include "gen/search/budget_bytes.h"
#include "gen/search/percentile.h"
#include "gen/search/problem.h"
#include "gen/search/seeds.h"
#include "gen/search/side.h"
#include "gen/search/timeline.h"
#include "gen/timing/cost.h"
#include "gen/timing/lower_bound.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "gen/topology/message.h"

/* Actions timed per second of the option: about the speed of one core. */
#define WORK_A_SECOND 80000000.0

enum { STARTS_SHARE = 4 }; /* at most one part in so many of the work is for the starts */

/* The least limit that holds one microbatch on a rank: the forwards of all its stages, then I and W
 * of the last. */
static double least_limit(const struct pen_search_problem *c, uint32_t rank) {
  double least = 0;
  for (uint32_t local = c->stages_per_rank; local-- > 0;) {
    uint32_t stage = c->stages[(size_t)rank * c->stages_per_rank + local];
    least = fmax(pen_budget_least(c->budget, stage),
                 c->budget->hold[stage][PEN_PROGRAM_F].remains + least);
  }
  return least;
}

void pen_search_refuse(const struct pen_search *search, const struct pen_topology *t) {
  const struct pen_search_problem *c = search->side[search->side[0] ? 0 : 1]->search;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    double least = least_limit(c, rank), missing = least - c->budget->limit[rank];
    if (missing <= 1e-9 * least) continue;
    if (t->has_pipeline_live_limit)
      pen_topology_fail(t, "pipeline.live_limit",
                        "at least %g, which one microbatch needs on rank %u", least, rank);
    pen_topology_fail(t, "memory.limit_mib",
                      "0 (none) or at least %.0f, which one microbatch needs on rank %u",
                      ceil((double)t->memory_limit_mib + missing / 1048576.0), rank);
  }
}

/* Fills the result from a side. `p99`: of its order, or 0 if that is not the objective. */
static void fill_result(struct pen_search *search, const struct pen_search_side *side, double p99) {
  const struct pen_timing *timing =
      side->is_named ? side->timing : pen_search_fuse(side->search, side->order, side->timing);
  double goal = p99 > 0 ? p99 : pen_search_side_value(side, timing), bound = side->bound;
  /* A pair that takes less than the sum of its actions may be below the bound of the search. */
  if (pen_order_has_pair(side->order))
    bound =
        fmin(bound, pen_search_side_bound(side, side->order, side->search->overlap_cost, false));
  bound = pen_bound_rounded(bound, goal);
  search->order = side->order;
  search->placement = side->placement;
  search->start = side->from;
  search->makespan = timing->makespan;
  search->span = timing->span;
  search->p99 = p99;
  search->lower_bound = bound;
  search->gap = bound > 0 ? (goal - bound) / bound : 0;
  search->trace = pen_search_progress_trace(search->progress, goal, &search->trace_count);
}

/* Lists the named orders of both sides, sorted by insertion. */
static void list_named(struct pen_search *search) {
  for (int i = 0; i < 2; i++)
    if (search->side[i]) search->named_count += search->side[i]->starts->named_count;
  search->named = pen_new(search->named_count + 1, sizeof *search->named);
  size_t count = 0;
  for (int i = 0; i < 2; i++)
    for (size_t n = 0; search->side[i] && n < search->side[i]->starts->named_count; n++) {
      const struct pen_search_named *named = &search->side[i]->starts->named[n];
      size_t at = count++;
      for (; at > 0 && pen_search_side_named_value(search->side[i], named) <
                           pen_search_side_named_value(search->side[i], &search->named[at - 1]);
           at--)
        search->named[at] = search->named[at - 1];
      search->named[at] = *named;
    }
}

bool pen_search_is_better(const struct pen_search *search, const struct pen_search_named *named) {
  const bool by_span = search->objective == PEN_OBJECTIVE_SPAN;
  double found = by_span ? search->span : search->makespan,
         other = by_span ? named->timing->span : named->timing->makespan;
  if (search->p99 > 0) found = search->p99;
  if (named->p99 > 0) other = named->p99;
  return !search->order || other < found * (1 - 1e-12);
}

struct pen_search *pen_search_with_named(const struct pen_search *search,
                                         const struct pen_search_named *named) {
  struct pen_search *other = pen_new(1, sizeof *other);
  struct pen_search_side side = *search->side[named->placement == PEN_PLACEMENT_V];
  *other = *search;
  pen_search_side_take(&side, named);
  fill_result(other, &side, named->p99);
  return other;
}

/* All times are finite: no action starts later than the sum of all costs. */
bool pen_search_can_time(const struct pen_partition *partition, const struct pen_stage_cost *cost) {
  double sum = 0;
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    sum += partition->microbatch_count *
           (cost[stage].forward + cost[stage].backward_input + cost[stage].backward_weight +
            2 * fmax(cost[stage].send, cost[stage].send_host));
  return isfinite(2 * sum);
}

/* The parameters of a search by either objective. */
struct search_task {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_graph *const *graph;
  const struct pen_cost_model *cost;
  const struct pen_search_effort *effort;
  const struct pen_search *known; /* null: no order is */
  const double *slack;
  bool tries[2]; /* [loop, v] */
  struct pen_search_progress *progress;
  struct pen_search_draws *draws; /* null: the objective is not the percentile */
};

/* Makes the best order by the percentile that of the side. */
static void adopt_percentile(struct pen_search_side *side) {
  side->order = side->percentile->order;
  side->timing = side->percentile->timing;
  side->from = side->percentile->from;
  side->is_named = true; /* a B in place of I and W would change its value */
}

/* Ends the search by the percentile. */
static void end_percentile(const struct search_task *task, struct pen_search_side *const side[2]) {
  if (!task->draws) return;
  for (int i = 0; i < 2; i++) {
    if (!side[i]) continue;
    pen_search_percentile_free(side[i]->percentile);
    if (side[i]->percentile->order) adopt_percentile(side[i]);
  }
  pen_search_draws_free(task->draws);
}

/* The side with the better order; without any order, the first side that was tried. */
static struct pen_search_side *better_of(struct pen_search_side *const side[2]) {
  if (!side[0]) return side[1];
  if (side[0]->percentile && side[1])
    return side[1]->percentile->value < side[0]->percentile->value ? side[1] : side[0];
  return side[1] && side[1]->timing && pen_search_side_is_better(side[0], side[1]->timing)
             ? side[1]
             : side[0];
}

/* Improves the best order by the percentile, starting from the best by the makespan too. */
static void anneal_percentile(struct pen_search_side *side, uint64_t second, uint64_t work,
                              uint64_t seed) {
  if (side->percentile && side->best)
    pen_search_percentile_improve(side->percentile, side->best, side->from, second, work, seed);
}

/* Searches by one objective. */
static void search_by(const struct search_task *task, bool by_span,
                      struct pen_search_side *side[2]) {
  uint64_t work = (uint64_t)WORK_A_SECOND, seed = task->effort->seed;
  for (int i = 0; i < 2; i++) {
    if (!task->tries[i]) continue;
    const struct pen_partition *here = pen_partition_placed(task->partition, i);
    const struct pen_budget *budget =
        pen_budget_of(task->topology, here, task->training, task->graph, task->slack);
    const struct pen_cost_model cost = pen_cost_model_placed(task->cost, here);
    side[i] = pen_search_side_start(
        task->topology,
        pen_search_problem(here, task->training, pen_costs_on_ranks(here, cost.stage),
                           pen_cost_model_collectives(&cost, here), cost.overlap, budget, by_span),
        task->progress, (enum pen_placement)i, task->known,
        work / STARTS_SHARE / (uint64_t)(task->tries[0] + task->tries[1]));
    for (uint32_t round = 0; round < PEN_SEARCH_FIRST_ROUNDS; round++)
      pen_search_side_round(side[i], round, work, seed);
    if (task->draws)
      side[i]->percentile =
          pen_search_percentile(task->draws, side[i]->timeline, side[i]->starts, task->progress);
    anneal_percentile(side[i], 0, work / STARTS_SHARE, seed);
  }
  struct pen_search_side *chosen = better_of(side);
  if (!chosen->timing) return;
  for (uint64_t round = PEN_SEARCH_FIRST_ROUNDS; round < task->effort->seconds * PEN_SEARCH_ROUNDS;
       round++) {
    pen_search_side_round(chosen, round, work, seed);
    if (round % PEN_SEARCH_ROUNDS == PEN_SEARCH_ROUNDS - 1)
      anneal_percentile(chosen, round / PEN_SEARCH_ROUNDS + 1, work, seed);
  }
  if (!task->draws) pen_search_side_break_ties(chosen, work, seed);
}

/* Whether no order on the tried placements can be better than the best, by either objective. */
static bool meets_all_bounds(struct pen_search_side *const side[2]) {
  const struct pen_timing *timing = better_of(side)->timing;
  for (int i = 0; i < 2; i++) {
    if (!side[i]) continue;
    double goal = pen_search_side_value(side[i], timing),
           rest = timing->makespan + timing->span - goal;
    if (goal > side[i]->bound * (1 + 1e-12) || rest > side[i]->other_bound * (1 + 1e-12))
      return false;
  }
  return true;
}

/* Takes the order of the search by the other objective if it is better by this one. */
static void take_other(struct pen_search_side *side, const struct pen_search_side *other) {
  if (!other || !other->timing || !pen_search_side_is_better(side, other->timing)) return;
  side->order = other->order;
  side->timing = other->timing;
  side->from = other->from;
  side->is_named = other->is_named;
}

static void count_starts(struct pen_search *search, struct pen_search_side *const side[2]) {
  for (int i = 0; i < 2; i++)
    if (side[i]) search->starts += side[i]->starts->tried;
}

struct pen_search *pen_search(const struct pen_topology *t, const struct pen_partition *partition,
                              const struct pen_training *training, struct pen_graph *const *graph,
                              const struct pen_cost_model *cost,
                              const struct pen_search_effort *effort,
                              const struct pen_search *known, const double *slack) {
  bool free =
      !t->has_pipeline_placement && partition->stages_per_rank > 1 && partition->rank_count > 1;
  bool by_span = t->pipeline_objective == PEN_OBJECTIVE_SPAN,
       by_percentile = t->pipeline_objective == PEN_OBJECTIVE_P99,
       zigzag = t->pipeline_placement == PEN_PLACEMENT_V;
  struct pen_search_progress *progress = pen_new(1, sizeof *progress);
  *progress = (struct pen_search_progress){.by_span = by_span, .by_percentile = by_percentile};
  const struct search_task task = {
      t,
      partition,
      training,
      graph,
      cost,
      effort,
      known,
      slack,
      {free || !zigzag, free || zigzag},
      progress,
      by_percentile ? pen_search_draws(partition, effort->seed) : NULL};
  struct pen_search *search = pen_new(1, sizeof *search);
  struct pen_search_side *other[2] = {NULL, NULL};
  search->objective = t->pipeline_objective;
  search->progress = progress;
  search_by(&task, by_span, search->side);
  list_named(search);
  end_percentile(&task, search->side);
  if (!better_of(search->side)->timing) return search;
  if (!task.draws && !meets_all_bounds(search->side)) search_by(&task, !by_span, other);
  for (int i = 0; i < 2; i++)
    if (search->side[i]) take_other(search->side[i], other[i]);
  count_starts(search, search->side);
  count_starts(search, other);
  search->work = pen_search_progress_work(progress);
  const struct pen_search_side *best = better_of(search->side);
  fill_result(search, best, best->percentile ? best->percentile->value : 0);
  return search;
}

void pen_search_print(const struct pen_search *search, const char *unit) {
  pen_tell(
      "penstock-gen: search: makespan %.6g, span %.6g %s; the %s is %.3f%% above the bound "
      "%.6g; from %s, placement %s",
      search->makespan, search->span, unit,
      pen_enum_text(pen_enum_objective, (int)search->objective), 100 * search->gap,
      search->lower_bound, search->start,
      pen_enum_text(pen_enum_placement, (int)search->placement));
}
