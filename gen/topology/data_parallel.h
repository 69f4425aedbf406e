/* data_parallel.h: what the settings data_parallel ask for, resolved. */
#ifndef PEN_DATA_PARALLEL_H
#define PEN_DATA_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* What data ranks shard: NONE with one of them, and of gradients and optimizer state without
 * training. */
enum pen_sharding pen_sharding_of(const struct pen_topology *topology);

/* Whether each program gathers the sharded weights of a unit directly before their use. */
bool pen_gathers_units(const struct pen_topology *topology);

/* Whether the gradients of a microbatch are summed over the data ranks unit by unit, directly after
 * their computation; with one replica, whether they are computed apart and then added. */
bool pen_reduces_microbatches(const struct pen_topology *topology);

/* Whether a rank keeps only its own shard of the gradients. */
bool pen_shards_gradients(const struct pen_topology *topology);

/* Sets the settings that depend on others where the topology does not. */
void pen_data_parallel_set_defaults(struct pen_topology *topology);
/* Ends the generator (78) where the settings contradict each other. */
void pen_data_parallel_validate(const struct pen_topology *topology);

#endif
