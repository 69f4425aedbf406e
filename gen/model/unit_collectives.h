/* unit_collectives.h: the collectives within the programs of a stage. */
#ifndef PEN_UNIT_COLLECTIVES_H
#define PEN_UNIT_COLLECTIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/graph.h"

/* Adds them to the programs, by data_parallel.unit and data_parallel.reduce. Sharded weights, and
 * gradients, become tensors of the elements that a rank keeps. */
void pen_unit_collectives(struct pen_graph *graph);

/* Whether embedding and head share this weight of a stage, so that it is whole on each rank. */
bool pen_weight_is_tied(const struct pen_graph *graph, uint32_t weight);

/* How many collectives a program completes. */
uint32_t pen_program_collectives(const struct pen_op_list *program);

#endif
