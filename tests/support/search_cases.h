/* search_cases.h: what tests of the schedule search share: costs, limits, and the search itself. */
#ifndef PEN_TESTS_SEARCH_CASES_H
#define PEN_TESTS_SEARCH_CASES_H

#include "gen/timing/timing.h"
#include "tests/support/plans.h"

/* A cost for each stage, of whole numbers up to `most`. */
struct pen_stage_cost *random_costs(const struct pen_partition *partition, uint64_t *seed,
                                    uint64_t most);

/* costs.live_backward: nothing, less than, as much as, and more than the limit's unit. */
double random_live_backward(uint64_t *seed);

/* What the search asks of a topology. live_limit 0: none. */
struct pen_topology *search_topology(enum pen_objective objective, double limit, double backward,
                                     double weight);

/* Searches on the partition's own placement. */
struct pen_search *search_placed(struct pen_topology *topology, struct pen_partition *partition,
                                 const struct pen_stage_cost *cost, bool zigzag, uint64_t seconds,
                                 uint64_t seed);

/* What the topology's objective is to make small. */
double search_goal(const struct pen_topology *topology, const struct pen_timing *timing);

#endif
