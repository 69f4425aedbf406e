/* cost.h: the cost model's inputs. */
#ifndef PEN_COST_H
#define PEN_COST_H

#include "gen/model.h"

/* Costs of every stage, from the topology's `costs` group and the programs' flops. */
struct pen_stage_cost *pen_costs(const struct pen_topology *topology, const struct pen_partition *partition,
                                 struct pen_graph *const *graph);
/* "in Gflop" or "in the file's unit". */
const char *pen_cost_unit(const struct pen_topology *topology);

#endif
