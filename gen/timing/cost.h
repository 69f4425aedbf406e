/* cost.h: the cost model's inputs. */
#ifndef PEN_COST_H
#define PEN_COST_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "gen/topology/topology.h"

/* Costs of every stage, from the topology's `costs` group and the programs' flops. */
struct pen_stage_cost *pen_costs(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 struct pen_graph *const *graph);
/* What the replicas' exchange of each stage's gradients takes, [stage], in the unit of `cost`: the
 * topology's figures, or in proportion to the bytes that are moved. */
struct pen_collective_cost *pen_collective_costs(const struct pen_topology *topology,
                                                 const struct pen_partition *partition,
                                                 struct pen_graph *const *graph,
                                                 const struct pen_stage_cost *cost);
/* "in Gflop" or "in the file's unit". */
const char *pen_cost_unit(const struct pen_topology *topology);

#endif
