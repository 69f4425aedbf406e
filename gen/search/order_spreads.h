/* order_spreads.h: how the makespans of an order and of the best named schedule spread. */
#ifndef PEN_ORDER_SPREADS_H
#define PEN_ORDER_SPREADS_H

#include "gen/timing/cost_model.h"
#include "gen/timing/robustness.h"
#include "gen/topology/topology.h"

/* An order, and what it was timed with. */
struct pen_order_timed {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_graph *const *graph; /* [stage] */
  const struct pen_cost_model *cost;
  const struct pen_order *order;
  const struct pen_timing *timing; /* complete */
};

/* [*count] the spreads of the order, which is called "chosen", and of the named schedule with the
 * least makespan among those that suit the topology and its placement and keep within the memory
 * limit. Nothing is named if there is none, or if the topology does not train. */
struct pen_spread *pen_order_spreads(const struct pen_order_timed *chosen, uint64_t seed,
                                     size_t *count);

#endif
