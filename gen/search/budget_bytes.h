/* budget_bytes.h: the memory budget of a topology. */
#ifndef PEN_BUDGET_BYTES_H
#define PEN_BUDGET_BYTES_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/memory_budget.h"
#include "gen/topology/topology.h"

/* The memory budget that the topology sets: pipeline.live_limit with costs.live_backward and
 * costs.live_weight; or memory.limit_mib in bytes, minus the weights, gradients, moments and
 * snapshots of a rank and minus `slack` ([rank]; null: none); or no limit. `graph`: those of
 * training. The bytes that a stage holds are estimated from its programs; the layout gives the
 * exact number. */
struct pen_budget *pen_budget_of(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack);

#endif
