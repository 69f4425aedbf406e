/* seeds.c: the orders that the search starts from: named schedules, and list schedules for a grid
 * of rules. */
#include "gen/search/seeds.h"
#include "gen/search/list_schedule.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "gen/schedule/schedule.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "gen/search/anneal.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "gen/topology/schedule_table.h"

/* What is minimised: the objective, and a little the mean of the ranks. */
static inline double pen_search_start_energy(struct pen_search_value value) {
  return value.greatest + 0.01 * value.mean;
}

/* Improves the rule of a list schedule by simulated annealing.
 *
 * A rule of the grid has the same few numbers for all ranks. Under a memory limit the best orders
 * differ from rank to rank: inner ranks, and the second stage of a rank, need room when the first
 * microbatches come back. So the search changes one number of the rule at a time: the most forwards
 * of one rank, the delay of F or I of one stage, or the patience or a preference of all. One change
 * moves many actions of all microbatches together, which moves of single actions (anneal.c) cannot
 * do: each of them alone would exceed the limit or make the order worse. Source: the search of
 * priority rules' parameters is common for resource-constrained projects (Kolisch, Hartmann 1999,
 * section 3); which parameters is our own. */

#define TEMPERATURE 0.3 /* initial, in mean costs of an action */

enum { DELAYS = 17 /* values of a delay, from -4 to 4 times the mean cost of an action */ };

/* A rule with the numbers of each rank and stage, and its energy. */
struct full_rule {
  struct pen_search_rule rule;
  double *flights, *delay; /* [rank], [F, I][stage] */
  double energy;
};

struct pen_search_rules {
  const struct pen_search_problem *search;
  struct pen_search_builder *builder;
  struct full_rule best, now;
  double cost; /* the mean of an action */
};

static struct full_rule new_rule(const struct pen_search_problem *c) {
  struct full_rule full = {.flights = pen_new(c->rank_count, sizeof *full.flights),
                           .delay = pen_new((size_t)2 * c->stage_count, sizeof *full.delay),
                           .energy = INFINITY};
  full.rule.flights = full.flights;
  full.rule.delay = full.delay;
  return full;
}

static struct pen_search_rules *search_rules(const struct pen_search_problem *c) {
  struct pen_search_rules *rules = pen_new(1, sizeof *rules);
  double work = 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) work += c->work[rank];
  *rules = (struct pen_search_rules){c, pen_search_builder(c), new_rule(c), new_rule(c),
                                     work / c->rank_count / c->count};
  return rules;
}

/* Takes a rule of the grid, with the energy of its order, if it is the best so far. */
static void search_rules_offer(struct pen_search_rules *rules, const struct pen_search_rule *rule,
                               double energy) {
  struct full_rule *best = &rules->best;
  const struct pen_search_problem *c = rules->search;
  if (energy >= best->energy) return;
  best->energy = energy;
  best->rule = *rule;
  best->rule.flights = best->flights;
  best->rule.delay = best->delay;
  for (uint32_t rank = 0; rank < c->rank_count; rank++)
    best->flights[rank] = fmax(1, floor(rule->flight - rule->slope * rank));
  memset(best->delay, 0, (size_t)2 * c->stage_count * sizeof *best->delay);
}

static void copy_rule(const struct pen_search_problem *c, struct full_rule *to,
                      const struct full_rule *from) {
  double *flights = to->flights, *delay = to->delay;
  memcpy(flights, from->flights, c->rank_count * sizeof *flights);
  memcpy(delay, from->delay, (size_t)2 * c->stage_count * sizeof *delay);
  *to = *from;
  to->rule.flights = to->flights = flights;
  to->rule.delay = to->delay = delay;
}

/* A number of the rule that was changed, and what it was; NULL: none. */
struct changed_number {
  double *number, was;
};

/* Draws a change of the current rule. */
static struct changed_number change_rule(struct pen_search_rules *rules, uint64_t *seed) {
  static const double patiences[] = {0, 0.25, 0.5, 0.75, 1, 2};
  const struct pen_search_problem *c = rules->search;
  struct full_rule *now = &rules->now;
  uint32_t choice = pen_search_below(seed, c->any_whole ? 9 : 8);
  if (choice == 0)
    now->rule.patience = patiences[pen_search_below(seed, sizeof patiences / sizeof *patiences)];
  if (choice == 1) now->rule.backward_first = !now->rule.backward_first;
  if (choice == 2) now->rule.deep_first = !now->rule.deep_first;
  if (choice == 8) now->rule.whole = !now->rule.whole;
  if (choice < 3 || choice == 8) return (struct changed_number){NULL, 0};
  bool flight = choice < 5;
  double *number = flight ? &now->flights[pen_search_below(seed, c->rank_count)]
                          : &now->delay[pen_search_below(seed, 2 * c->stage_count)];
  const struct changed_number changed = {number, *number};
  if (flight)
    *number = fmax(1, *number + (pen_search_below(seed, 2) ? 1 : -1));
  else
    *number = 0.5 * rules->cost * ((double)pen_search_below(seed, DELAYS) - DELAYS / 2);
  return changed;
}

/* The energy of the current rule's order; INFINITY: none within the limit. */
static double try_rule(struct pen_search_rules *rules, struct pen_search_timeline *timeline,
                       uint32_t *list) {
  struct pen_search_value value;
  if (!pen_search_build(rules->builder, &rules->now.rule, list)) return INFINITY;
  return pen_search_set(timeline, list, &value) ? pen_search_start_energy(value) : INFINITY;
}

/* Anneals with that many builds, starting from the best rule so far. Fills list [rank][count] with
 * the best order of this call. Returns the number of orders built; 0: no rule was offered. */
static uint64_t search_rules_improve(struct pen_search_rules *rules,
                                     struct pen_search_timeline *timeline, uint64_t builds,
                                     uint64_t seed, uint32_t *list) {
  const struct pen_search_problem *c = rules->search;
  if (rules->best.energy == INFINITY) return 0;
  size_t bytes = (size_t)c->rank_count * c->count * sizeof *list;
  uint32_t *trial = pen_new(bytes, 1);
  copy_rule(c, &rules->now, &rules->best);
  double least = try_rule(rules, timeline, list);
  seed = (seed + 1) * 0x9E3779B97F4A7C15u;
  struct pen_annealer annealer = {rules->now.energy, TEMPERATURE * rules->cost, seed ? seed : 1};
  for (uint64_t n = 0; n < builds; n++) {
    struct pen_search_rule rule = rules->now.rule;
    struct changed_number changed = change_rule(rules, &annealer.seed);
    double most = pen_annealer_most(&annealer, 1 - (double)n / (double)builds),
           energy = try_rule(rules, timeline, trial);
    if (energy > most) {
      rules->now.rule = rule;
      if (changed.number) *changed.number = changed.was;
      continue;
    }
    rules->now.energy = annealer.energy = energy;
    if (energy >= least) continue;
    least = energy;
    memcpy(list, trial, bytes);
    if (energy < rules->best.energy) copy_rule(c, &rules->best, &rules->now);
  }
  pen_free(trial);
  return builds + 1;
}

/* Adds the order of the timeline if it is among the best. */
static void add_start(struct pen_search_seeds *starts, const struct pen_search_timeline *timeline,
                      const char *name, struct pen_search_value value) {
  const struct pen_search_problem *c = timeline->search;
  size_t bytes = (size_t)c->rank_count * c->count * sizeof(uint32_t);
  uint32_t at = starts->count;
  while (at > 0 &&
         pen_search_start_energy(value) < pen_search_start_energy(starts->start[at - 1].value))
    at--;
  if (at > 0 &&
      pen_search_start_energy(value) == pen_search_start_energy(starts->start[at - 1].value))
    return;
  if (at == PEN_SEARCH_SEEDS) return;
  bool full = starts->count == PEN_SEARCH_SEEDS;
  uint32_t *list = full ? starts->start[PEN_SEARCH_SEEDS - 1].list : pen_new(bytes, 1);
  if (!full) starts->count++;
  memmove(&starts->start[at + 1], &starts->start[at],
          (starts->count - 1 - at) * sizeof *starts->start);
  memcpy(list, timeline->list, bytes);
  starts->start[at] = (struct pen_search_seed){name, list, value};
}

/* ---- named schedules ---- */

static void try_named(struct pen_search_seeds *starts, const struct pen_topology *topology,
                      struct pen_search_timeline *timeline, const char *name, uint32_t *list) {
  const struct pen_search_problem *c = timeline->search;
  struct pen_order *order = pen_compose(topology, c->partition);
  struct pen_search_value value;
  starts->tried++;
  struct pen_timing *timing = pen_search_time(c, order, c->overlap_cost);
  if (!timing->complete) return;
  bool fits = pen_budget_holds(c->budget, order);
  PEN_RESERVE(starts->named, starts->named_count + 1);
  starts->named[starts->named_count++] =
      (struct pen_search_named){name, starts->placement, order, timing, fits, 0};
  if (!fits) return;
  pen_search_lists(c, order, list);
  if (pen_search_set(timeline, list, &value)) add_start(starts, timeline, name, value);
}

/* Tries a schedule with every warm-up and split that it allows. */
static void try_row(struct pen_search_seeds *starts, const struct pen_topology *topology,
                    struct pen_search_timeline *timeline, const struct pen_schedule *schedule,
                    uint32_t *list) {
  bool open = schedule->split == PEN_SPLIT_SETTING;
  for (int warmup = 1; warmup <= (open && !schedule->warmup ? 2 : 1); warmup++)
    for (int split = 0; split <= open; split++) {
      struct pen_topology copy = *topology;
      copy.pipeline_schedule = (enum pen_schedule_kind)(schedule - pen_schedules);
      copy.has_pipeline_warmup = true;
      copy.pipeline_warmup = warmup;
      copy.pipeline_zero_bubble = split;
      const char *name = !open ? schedule->name
                               : pen_text("%s%s%s", schedule->name, warmup == 2 ? ", warmup 2" : "",
                                          split ? ", zero_bubble" : "");
      try_named(starts, &copy, timeline, name, list);
    }
}

static void try_table(struct pen_search_seeds *starts, const struct pen_topology *topology,
                      struct pen_search_timeline *timeline, bool zigzag, uint32_t *list) {
  const struct pen_search_problem *c = timeline->search;
  bool same = c->stages_per_rank == 1 || c->rank_count == 1; /* loop and V are the same */
  for (uint32_t i = 0; i < pen_schedule_count; i++) {
    const struct pen_schedule *schedule = &pen_schedules[i];
    if (!schedule->trains || schedule->given) continue;
    if (c->stages_per_rank < schedule->stages_minimum ||
        c->stages_per_rank > schedule->stages_maximum)
      continue;
    if (schedule->strict && !same && zigzag != (schedule->placement == PEN_PLACEMENT_V)) continue;
    if (!pen_schedule_suits(schedule, c->rank_count, c->stages_per_rank, c->microbatch_count))
      continue;
    try_row(starts, topology, timeline, schedule, list);
  }
}

/* ---- list schedules ---- */

static const double slopes[] = {0, 0.25, 0.5, 0.75, 1, 1.5, 2},
                    patiences[] = {0, 0.25, 0.5, 0.75, 1};
enum {
  SLOPES = sizeof slopes / sizeof *slopes,
  PATIENCES = sizeof patiences / sizeof *patiences,
  FLIGHTS = 24
};

/* Rule `index` of the grid: forwards in flight from 1 to the most that a rank can use. */
static struct pen_search_rule rule_of(const struct pen_search_problem *c, uint32_t index) {
  double most = fmin((double)c->stages_per_rank * c->microbatch_count,
                     (c->stages_per_rank + 1.25) * c->rank_count);
  struct pen_search_rule rule = {.backward_first = index % 2, .deep_first = index / 2 % 2};
  index /= 4;
  rule.patience = patiences[index % PATIENCES];
  index /= PATIENCES;
  rule.slope = slopes[index % SLOPES];
  index /= SLOPES;
  rule.flight = 1 + (most - 1) * (FLIGHTS - 1 - index % FLIGHTS) / (FLIGHTS - 1);
  rule.whole = index / FLIGHTS;
  return rule;
}

enum {
  GRID = 4 * PATIENCES * SLOPES * FLIGHTS,
  STRIDE = 1193, /* a prime that does not divide the grid */
  GRID_SHARE =
      2 /* one part in so many of the builds is for the grid, the others improve its best */
};

static uint64_t grid_size(const struct pen_search_problem *c) {
  return c->any_whole ? 2 * GRID : GRID;
}

/* Tries the first `count` rules of the grid in strides, so that those omitted are spread evenly;
 * the first rule has as many forwards in flight as the limit allows. */
static void try_rules(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                      uint64_t count, uint32_t *list) {
  const struct pen_search_problem *c = timeline->search;
  struct pen_search_builder *builder = pen_search_builder(c);
  bool deep = c->stages_per_rank > 1;
  uint64_t index = 1;
  for (uint64_t n = 0; n < count; n++, index = (index + STRIDE) % grid_size(c)) {
    struct pen_search_rule rule = rule_of(c, (uint32_t)index);
    struct pen_search_value value;
    if (!deep && rule.deep_first) continue;
    starts->tried++;
    if (!pen_search_build(builder, &rule, list) || !pen_search_set(timeline, list, &value))
      continue;
    add_start(starts, timeline, "list schedule", value);
    search_rules_offer(starts->rules, &rule, pen_search_start_energy(value));
  }
}

bool pen_search_seeds_add(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                          uint64_t builds, uint64_t seed) {
  const struct pen_search_problem *c = timeline->search;
  uint32_t *list = pen_new((size_t)c->rank_count * c->count, sizeof *list);
  struct pen_search_value value;
  uint64_t tried = search_rules_improve(starts->rules, timeline, builds, seed, list);
  starts->tried += tried;
  bool found = tried > 0 && pen_search_set(timeline, list, &value);
  if (found) add_start(starts, timeline, "list schedule", value);
  pen_free(list);
  return found;
}

void pen_search_seeds_take(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                           const struct pen_order *order, const char *name) {
  const struct pen_search_problem *c = timeline->search;
  struct pen_search_value value;
  if (!pen_budget_holds(c->budget, order)) return;
  uint32_t *list = pen_new((size_t)c->rank_count * c->count, sizeof *list);
  pen_search_lists(c, order, list);
  if (pen_search_set(timeline, list, &value)) add_start(starts, timeline, name, value);
  pen_free(list);
}

/* One microbatch after another: it is within the limit if any order is. */
static void try_serial(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                       bool whole, uint32_t *list) {
  struct pen_search_rule serial = {.flight = 1, .slope = 0, .patience = 0, .whole = whole};
  struct pen_search_value value;
  starts->tried++;
  if (pen_search_build(pen_search_builder(timeline->search), &serial, list) &&
      pen_search_set(timeline, list, &value))
    add_start(starts, timeline, "list schedule", value);
}

struct pen_search_seeds *pen_search_seeds(const struct pen_topology *topology,
                                          enum pen_placement placement,
                                          struct pen_search_timeline *timeline, uint64_t work) {
  const struct pen_search_problem *c = timeline->search;
  struct pen_search_seeds *starts = pen_new(1, sizeof *starts);
  uint32_t *list = pen_new((size_t)c->rank_count * c->count, sizeof *list);
  bool zigzag =
      c->stages_per_rank > 1 && c->rank_count > 1 && c->partition->rank_of[c->rank_count] != 0;
  starts->placement = placement;
  starts->rules = search_rules(c);
  try_table(starts, topology, timeline, zigzag, list);
  uint64_t builds = 1 + work / pen_search_build_work(c);
  if (builds > grid_size(c)) builds = grid_size(c);
  uint64_t grid = 1 + (builds - 1) / GRID_SHARE;
  try_rules(starts, timeline, grid, list);
  pen_search_seeds_add(starts, timeline, (builds - grid) / (c->stages_per_rank > 1 ? 1 : 2), 0);
  for (int whole = 0; whole <= c->any_whole && starts->count == 0; whole++)
    try_serial(starts, timeline, whole, list);
  return starts;
}
