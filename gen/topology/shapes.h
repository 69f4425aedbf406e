/* shapes.h: sequence-length buckets: steps of shorter sequences than model.sequence. */
#ifndef PEN_SHAPES_H
#define PEN_SHAPES_H

#include "gen/topology/topology.h"

/* Checks the settings `shapes` (78) and sorts them by sequence, without that of model.sequence. */
void pen_topology_sort_shapes(struct pen_topology *topology);

/* The same topology with the sequence and microbatches of shape `index`. */
struct pen_topology *pen_topology_of_shape(const struct pen_topology *topology, size_t index);

/* The same topology with one microbatch of one sequence of that many tokens. */
struct pen_topology *pen_topology_of_window(const struct pen_topology *topology, int64_t sequence);

/* Whether texts have all that the model reads, so that it may generate. */
bool pen_topology_reads_texts(const struct pen_topology *topology);

/* Whether the plan has a cache of keys and values: generate.prompts, of such a model on CPUs. A GPU
 * has no kernels for it yet. */
bool pen_topology_has_cache(const struct pen_topology *topology);

/* The texts whose keys and values it holds: of all groups in flight. */
int64_t pen_topology_cache_slots(const struct pen_topology *topology);

/* The same topology with one microbatch of `prompts` sequences of that many new tokens each, over a
 * cache of the tokens before them. */
struct pen_topology *pen_topology_of_cache(const struct pen_topology *topology, int64_t prompts,
                                           int64_t sequence);

#endif
