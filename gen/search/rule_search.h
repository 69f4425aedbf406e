/* rule_search.h: improves the rule of a list schedule by simulated annealing. */
#ifndef PEN_RULE_SEARCH_H
#define PEN_RULE_SEARCH_H

#include <stdint.h>

#include "gen/search/list_schedule.h"
#include "gen/search/timeline.h"

struct pen_search_rules;

struct pen_search_rules *pen_search_rules(const struct pen_search_problem *search);

/* What is minimised: the objective, and a little the mean of the ranks. */
static inline double pen_search_start_energy(struct pen_search_value value) {
  return value.greatest + 0.01 * value.mean;
}

/* Takes a rule of the grid, with the energy of its order, if it is the best so far. */
void pen_search_rules_offer(struct pen_search_rules *rules, const struct pen_search_rule *rule,
                            double energy);

/* Anneals with that many builds, starting from the best rule so far. Fills list [rank][count] with
 * the best order of this call. Returns the number of orders built; 0: no rule was offered. */
uint64_t pen_search_rules_improve(struct pen_search_rules *rules,
                                  struct pen_search_timeline *timeline, uint64_t builds,
                                  uint64_t seed, uint32_t *list);

#endif
