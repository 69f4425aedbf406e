/* tensor_parallel.h: what the settings tensor_parallel ask for, resolved. */
#ifndef PEN_TENSOR_PARALLEL_H
#define PEN_TENSOR_PARALLEL_H

#include "gen/topology/topology.h"

/* Sets tensor_parallel.splits where the topology does not. */
void pen_tensor_parallel_set_defaults(struct pen_topology *topology);
/* Ends the generator (78) where the settings contradict others, or ask for what is not built yet.
 */
void pen_tensor_parallel_validate(const struct pen_topology *topology);
/* The same of where cluster.mapping puts the tensor ranks; ranks_per_host and mapping are right. */
void pen_tensor_parallel_check_mapping(const struct pen_topology *topology);

#endif
