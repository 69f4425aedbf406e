/* search.h: schedule = "search": finds an order of F, I, W and B within the memory limit.
 *
 * In: the topology, its partition, graphs and costs. Out: a struct pen_search: the order, its
 * placement and its bounds.
 *
 *   search_pass.c    searches, lowers and lays out, until the layout keeps within the limit
 *   search.c         both placements, both objectives, and the result
 *   side.c           one placement by one objective
 *   problem.c        the problem as numbers
 *   seeds.c          the starts: named schedules and list schedules (list_schedule.c), whose rule
 *                    it improves
 *   timeline.c       the times of one order while actions move
 *   anneal.c         improves an order
 *   progress.c       what a search has done so far
 *   percentile.c     the search by pipeline.objective = "p99"
 *   budget_bytes.c   the memory limit in bytes
 *   order_spreads.c  how an order and the best named schedule spread under noise of the costs
 */
#ifndef PEN_SEARCH_H
#define PEN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/search/progress.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* The order of a named schedule. */
struct pen_search_named {
  const char *name;
  enum pen_placement placement;
  struct pen_order *order;
  const struct pen_timing *timing;
  bool fits;  /* it keeps within the memory budget */
  double p99; /* 0: not searched by it */
};

struct pen_search_side;

struct pen_search {
  struct pen_order *order; /* null: no order within the limit was found */
  enum pen_placement placement;
  const char *start; /* the schedule or list schedule that the best order was made from */
  enum pen_objective objective;
  double makespan, span;
  double p99;              /* of the makespan (percentile.h); 0: not searched by it */
  double lower_bound, gap; /* of the objective; of p99: above the bound of the makespan */
  uint64_t starts, work;   /* number of starts; actions timed in total */
  const struct pen_search_progress *progress;
  struct pen_search_point *trace; /* [trace_count] pen_search_progress_trace() of the objective */
  size_t trace_count;
  struct pen_search_named *named; /* [named_count] all that suit the topology, within the budget or
                                     not, the best by the objective first */
  size_t named_count;
  struct pen_search_side *side[2]; /* [loop, v] the search by the objective; null: not tried */
};

struct pen_search_effort {
  uint64_t seconds; /* a fixed amount of work per second: the result depends on no clock */
  uint64_t seed;
};

/* Whether the times of all orders are finite, as pen_search() needs. */
bool pen_search_can_time(const struct pen_partition *partition, const struct pen_stage_cost *cost);

/* Searches for an order. Its placement is that of the result, not of partition and topology.
 * `known`: an order that the search also starts from; NULL: none. `slack`: see pen_budget_of(). */
struct pen_search *pen_search(const struct pen_topology *topology,
                              const struct pen_partition *partition,
                              const struct pen_training *training, struct pen_graph *const *graph,
                              const struct pen_cost_model *cost,
                              const struct pen_search_effort *effort,
                              const struct pen_search *known, const double *slack);

/* Whether a named order is better than the one found, or none was found. */
bool pen_search_is_better(const struct pen_search *search, const struct pen_search_named *named);

/* A copy of the result with a named order and its placement instead of the order found. */
struct pen_search *pen_search_with_named(const struct pen_search *search,
                                         const struct pen_search_named *named);

/* Fails (78) if one microbatch needs more than the limit, and says how much; else returns. */
void pen_search_refuse(const struct pen_search *search, const struct pen_topology *topology);

/* Prints the result on one line of standard error. */
void pen_search_print(const struct pen_search *search, const char *unit);

#endif
