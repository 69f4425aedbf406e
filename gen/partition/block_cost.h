/* block_cost.h: the cost of a stage with a given run of blocks, without building the stage. */
#ifndef PEN_BLOCK_COST_H
#define PEN_BLOCK_COST_H

#include "gen/model/blocks.h"
#include "gen/topology/topology.h"

struct pen_block_costs;

/* Measures every block of a family's model by itself, in floating-point operations.
 * `splits_backward`: the schedule runs I and W, not B. */
struct pen_block_costs *pen_block_costs(const struct pen_topology *topology,
                                        const struct pen_family *family, bool splits_backward);

/* 10^9 floating-point operations of F and B, or of F, I and W where the schedule splits the
 * backward (of F only where it does not train), of a stage that holds blocks [first, past): equal
 * to the cost that gen/timing/cost.c finds for the built stage when the topology gives no costs.
 * `costs` is a struct pen_block_costs; the signature is that of pen_part_cost
 * (gen/partition/balance.h). */
double pen_span_cost(const void *costs, uint32_t stage, uint32_t first, uint32_t past);

#endif
