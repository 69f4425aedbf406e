/* persistent.h: what an arena holds for the whole run. */
#ifndef PEN_PERSISTENT_H
#define PEN_PERSISTENT_H

#include "gen/layout/internal.h"

/* Bytes of the keys and values of a stage's attentions, for all texts in flight, by the graph of
 * any step. */
uint64_t pen_stage_cache_bytes(const struct pen_graph *graph);

/* Bytes that a stage takes on its rank whatever the activations: its weights, with what training
 * keeps of them. */
uint64_t pen_stage_resident_bytes(const struct pen_partition *partition,
                                  const struct pen_graph *graph);

/* Places what persists on a rank after the receive region: sets the offsets of weights, ties,
 * losses and memory. */
void pen_place_persistent(struct pen_layout_state *l, size_t profile_count, uint32_t rank,
                          struct pen_staged_inputs *inputs);

/* Gives the weights and ties of the tensor ranks after the first the places of the first's. */
void pen_place_tensor_ranks(const struct pen_plan *plan, struct pen_weight *weights,
                            struct pen_tie *ties);

#endif
