/* rule_search.c: improves the rule of a list schedule by simulated annealing.
 *
 * A rule of the grid has the same few numbers for all ranks. Under a memory limit the best orders
 * differ from rank to rank: inner ranks, and the second stage of a rank, need room when the first
 * microbatches come back. So the search changes one number of the rule at a time: the most forwards
 * of one rank, the delay of F or I of one stage, or the patience or a preference of all. One change
 * moves many actions of all microbatches together, which moves of single actions (anneal.c) cannot
 * do: each of them alone would exceed the limit or make the order worse. Source: the search of
 * priority rules' parameters is common for resource-constrained projects (Kolisch, Hartmann 1999,
 * section 3); which parameters is our own. */
#include "gen/search/rule_search.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/search/anneal.h"

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

struct pen_search_rules *pen_search_rules(const struct pen_search_problem *c) {
  struct pen_search_rules *rules = pen_new(1, sizeof *rules);
  double work = 0;
  for (uint32_t rank = 0; rank < c->rank_count; rank++) work += c->work[rank];
  *rules = (struct pen_search_rules){c, pen_search_builder(c), new_rule(c), new_rule(c),
                                     work / c->rank_count / c->count};
  return rules;
}

void pen_search_rules_offer(struct pen_search_rules *rules, const struct pen_search_rule *rule,
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

uint64_t pen_search_rules_improve(struct pen_search_rules *rules,
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
