/* measure_plans.h: the plans that the command `measure` runs: one rank with one block of each kind,
 * a stage each. */
#ifndef PEN_MEASURE_PLANS_H
#define PEN_MEASURE_PLANS_H

#include <stddef.h>

#include "gen/topology/topology.h"

/* The topologies of these plans: two for each size of a microbatch, without recomputation and with,
 * then one with replicas. None (count 0) if the topology does not train. */
struct pen_topology **pen_measure_topologies(const struct pen_topology *topology, size_t *count);

#endif
