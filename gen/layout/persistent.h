/* persistent.h: what an arena holds for the whole run. */
#ifndef PEN_PERSISTENT_H
#define PEN_PERSISTENT_H

#include "gen/layout/internal.h"

/* Bytes that a weight takes on its rank whatever the activations: value, bf16 copy, and, if it is
 * trained, gradient and two moments, or their shards; with memory.snapshot also a copy of what a
 * checkpoint holds of it. Of a tied weight the head keeps what it reads, unless that is on the rank
 * already, and its gradient. */
uint64_t pen_resident_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                            size_t index);

/* Places what persists on a rank after the receive region: sets the offsets of weights, tie, losses
 * and memory. */
void pen_place_persistent(struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                          struct pen_staged_inputs *inputs);

#endif
