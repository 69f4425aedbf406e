/* search.h: schedule = "search": finds an order of F, I, W and B within the memory limit.
 *
 * In: the topology, its partition, graphs and costs. Out: a struct pen_search: the order, its
 * placement and its bounds; search_pass.h also lowers it and lays it out, and searches again when
 * the layout exceeds the limit. The parts: problem.h (the case as numbers), seeds.h (orders to
 * start from: named schedules and list_schedule.h), timeline.h (the times of one order while
 * actions move), anneal.h (improves it), budget_bytes.h (the memory limit in bytes).
 */
#ifndef PEN_SEARCH_H
#define PEN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* A named schedule as it is. */
struct pen_search_named {
  const char *name, *placement;
  struct pen_order *order;
  const struct pen_timing *timing;
  bool fits; /* it keeps within the budget */
};

struct pen_search_side;

struct pen_search {
  struct pen_order *order; /* null: none was found that keeps within the limit */
  const char *placement;   /* "loop" or "v" */
  const char *start;       /* the schedule, or kind of start, that the best came from */
  const char *objective;
  double makespan, span;
  double lower_bound, gap;        /* of the objective */
  uint64_t starts, work;          /* orders that the search began with; actions timed in all */
  struct pen_search_named *named; /* [named_count] all that suit, whether they fit or not, the best
                                     by the objective first */
  size_t named_count;
  struct pen_search_side
      *side[2]; /* [loop, v] the search by the objective; null: that placement was not tried */
};

struct pen_search_effort {
  uint64_t seconds; /* stands for a fixed amount of work, so that the result depends on no clock */
  uint64_t seed;
};

/* Whether the times of all orders are numbers: what pen_search() needs. */
bool pen_search_can_time(const struct pen_partition *partition, const struct pen_stage_cost *cost);

/* Searches for the topology's schedule. The result's placement holds, not that of partition and
 * topology. `slack`: see pen_budget_of(). */
struct pen_search *pen_search(const struct pen_topology *topology,
                              const struct pen_partition *partition,
                              const struct pen_training *training, struct pen_graph *const *graph,
                              const struct pen_stage_cost *cost, double overlap_cost,
                              const struct pen_search_effort *effort, const double *slack);

/* Whether a named order is better than the one found, if one was. */
bool pen_search_is_better(const struct pen_search *search, const struct pen_search_named *named);

/* The same result with a named order, and its placement, in place of the order found. */
struct pen_search *pen_search_with_named(const struct pen_search *search,
                                         const struct pen_search_named *named);

/* Fails (78): says what one microbatch needs, which is more than the limit. Returns where that is
 * not so. */
void pen_search_refuse(const struct pen_search *search, const struct pen_topology *topology);

/* Says on one line of standard error what came of it. */
void pen_search_print(const struct pen_search *search, const char *unit);

#endif
