/* block_cost.h: what a stage would cost that holds a given run of blocks, without building it. */
#ifndef PEN_BLOCK_COST_H
#define PEN_BLOCK_COST_H

#include "gen/partition/partition.h"
#include "gen/topology/topology.h"

struct pen_block_costs;

/* Measures every block of the partition's model by itself, by floating-point operations; the
 * partition's spans need not be known. */
struct pen_block_costs *pen_block_costs(const struct pen_topology *topology,
                                        const struct pen_partition *partition);

/* 10^9 floating-point operations of F and B, or of F, I and W where the schedule splits the
 * backward (of F alone where it does not train), of a stage that holds blocks [first, past): what
 * gen/timing/cost.c finds for the stage when it is built and the topology gives no costs. `costs`
 * is a struct pen_block_costs: the form that gen/partition/balance.h wants. */
double pen_span_cost(const void *costs, uint32_t stage, uint32_t first, uint32_t past);

#endif
