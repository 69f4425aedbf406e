/* budget_bytes.h: the memory budget of a topology. */
#ifndef PEN_BUDGET_BYTES_H
#define PEN_BUDGET_BYTES_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/memory_budget.h"
#include "gen/topology/topology.h"

/* What the topology allows: pipeline.live_limit with costs.live_backward and costs.live_weight,
 * else memory.limit_mib in bytes, less the weights, gradients, moments and snapshots of a rank, and
 * less `slack` ([rank]; null: none); else no limit. `graph` is the training one. What a stage holds
 * in bytes is an estimate from its programs; the layout confirms it or not. */
struct pen_budget *pen_budget_of(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack);

#endif
