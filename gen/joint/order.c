/* order.c: orders of a cut for the schedule "search": those that the search (gen/search/) starts
 * from, and its annealing. */
#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/joint/internal.h"
#include "gen/search/anneal.h"
#include "gen/search/problem.h"
#include "gen/search/seeds.h"
#include "gen/search/timeline.h"
#include "gen/timing/cost.h"
#include "gen/timing/lower_bound.h"

/* The search problem of a cut, and its timeline. */
struct cut_search {
  struct pen_joint_built built;
  struct pen_search_problem *problem;
  struct pen_search_timeline *timeline;
  double *slack;
};

static struct cut_search search_of(struct pen_joint *j, const struct pen_partition *placed,
                                   const struct pen_joint_cut *cut) {
  struct cut_search s = {.built = pen_joint_build(j, placed, cut)};

  const struct pen_budget *budget = pen_joint_budget(j, &s.built, j->slack);
  const struct pen_cost_model *cost = &s.built.cost;
  s.problem = pen_search_problem(
      s.built.partition, s.built.training, pen_costs_on_ranks(placed, cost->stage),
      pen_cost_model_collectives(cost, s.built.partition), cost->overlap, budget, j->by_span);
  s.timeline = pen_search_timeline(s.problem);
  return s;
}

/* Counts what the timeline did, and frees it. */
static void end_search(struct pen_joint *j, struct cut_search *s) {
  struct pen_search_timeline *t = s->timeline;
  j->work += t->work;
  j->progress.work = j->work;
  j->progress.moves += t->moves;
  void *const arrays[] = {t->list,  t->length, t->place, t->cell,  t->held, t->times,
                          t->trial, t->from,   t->at,    t->stack, t->waits};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pen_free(arrays[i]);
  pen_free(t);
}

/* Takes an order if it is better. */
static void take_order(struct pen_joint_order *best, struct pen_joint_order other) {
  if (other.time.objective < best->time.objective * (1 - 1e-13)) *best = other;
}

static void take_list(struct pen_joint *j, const struct cut_search *s, struct pen_joint_order *best,
                      const uint32_t *list, const char *from) {
  struct pen_order *order = pen_search_order(s->problem, list);
  const struct pen_timing *timing = pen_search_time(s->problem, order, -1);
  take_order(best, (struct pen_joint_order){order, from,
                                            pen_joint_time_of(j, &s->built, order, timing), false});
}

struct pen_joint_order pen_joint_start_order(struct pen_joint *j,
                                             const struct pen_partition *placed,
                                             enum pen_placement placement,
                                             const struct pen_joint_cut *cut, uint64_t work,
                                             struct pen_joint_orders *named) {
  struct cut_search s = search_of(j, placed, cut);
  struct pen_joint_order best = {.time = {INFINITY, INFINITY}};
  const struct pen_search_seeds *seeds = pen_search_seeds(j->topology, placement, s.timeline, work);
  for (uint32_t i = 0; i < seeds->count; i++)
    take_list(j, &s, &best, seeds->start[i].list, seeds->start[i].name);
  /* Those that do not fit by the estimate of bytes may fit by their layout. */
  if (named) *named = (struct pen_joint_orders){pen_new(seeds->named_count + 1, sizeof best), 0};
  for (size_t i = 0; i < seeds->named_count; i++) {
    const struct pen_search_named *of = &seeds->named[i];
    const struct pen_joint_order order = {
        of->order, of->name, pen_joint_time_of(j, &s.built, of->order, of->timing), true};
    if (of->fits) take_order(&best, order);
    if (named && (of->fits || !j->topology->has_pipeline_live_limit))
      named->order[named->count++] = order;
  }
  j->starts += seeds->tried;
  end_search(j, &s);
  return best;
}

void pen_joint_anneal(struct pen_joint *j, const struct pen_partition *placed,
                      const struct pen_joint_cut *cut, const struct pen_joint_effort *effort,
                      double temperature, struct pen_joint_order *order) {
  struct cut_search s = search_of(j, placed, cut);
  const size_t cells = (size_t)s.problem->rank_count * s.problem->count;
  uint32_t *list = pen_new(cells, sizeof *list), *best = pen_new(cells, sizeof *best);
  struct pen_search_value value;
  double mean = 0;
  pen_search_lists(s.problem, order->order, list);
  for (uint32_t rank = 0; rank < j->rank_count; rank++)
    mean += s.problem->work[rank] / j->rank_count / s.problem->count;
  if (pen_search_set(s.timeline, list, &value)) {
    const struct pen_search_anneal anneal = {
        .seed = effort->seed, .work = effort->work, .temperature = temperature * mean};
    pen_search_improve(s.timeline, &anneal, value, best);
    take_list(j, &s, order, best, order->from);
  }
  pen_free(list);
  pen_free(best);
  end_search(j, &s);
}

static struct pen_order *copy_order(const struct pen_order *order) {
  struct pen_order *copy = pen_new(1, sizeof *copy);
  *copy = (struct pen_order){order->rank_count, pen_new(order->rank_count, sizeof *copy->count),
                             pen_new(order->rank_count, sizeof *copy->action)};
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    const size_t bytes = order->count[rank] * sizeof **copy->action;
    copy->count[rank] = order->count[rank];
    copy->action[rank] = pen_new(1, bytes);
    memcpy(copy->action[rank], order->action[rank], bytes);
  }
  return copy;
}

struct pen_search *pen_joint_search(struct pen_joint *j, const struct pen_partition *placed,
                                    enum pen_placement placement, const struct pen_joint_cut *cut,
                                    const struct pen_joint_order *order) {
  struct cut_search s = search_of(j, placed, cut);
  struct pen_search *search = pen_new(1, sizeof *search);
  struct pen_order *fused = copy_order(order->order);
  const struct pen_timing *timing = pen_search_time(s.problem, order->order, s.built.cost.overlap);
  if (!order->is_named) timing = pen_search_fuse(s.problem, fused, timing);
  const struct pen_bounds bounds =
      pen_bounds_of(order->order, s.built.partition, s.built.training, s.problem->least_cost,
                    s.problem->exchange, s.built.cost.overlap, s.problem->budget);
  const double bound = j->by_span ? bounds.span.greatest : bounds.makespan.greatest,
               goal = pen_joint_time_of(j, &s.built, fused, timing).simulated;
  *search = (struct pen_search){.order = fused,
                                .placement = placement,
                                .start = order->from,
                                .objective = j->topology->pipeline_objective,
                                .makespan = timing->makespan,
                                .span = timing->span,
                                .lower_bound = pen_bound_rounded(bound, goal),
                                .starts = j->starts,
                                .work = j->work,
                                .progress = &j->progress};
  search->trace = pen_search_progress_trace(search->progress, goal, &search->trace_count);
  if (bound > 0) search->gap = (goal - search->lower_bound) / search->lower_bound;
  end_search(j, &s);
  return search;
}
