/* weights.h: the weights of all stages, in model order. */
#ifndef PEN_WEIGHTS_H
#define PEN_WEIGHTS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

/* All weights, without offsets; first_weight[stage] is the index of the stage's first. */
struct pen_weight *pen_list_weights(const struct pen_partition *partition,
                                    struct pen_graph *const *graph, uint32_t *first_weight,
                                    uint32_t *count);
/* The matrix that the head shares with the embedding, without offsets; NULL: none. In a bf16 plan
 * the head's product reads a copy, which the owner writes. */
struct pen_tie *pen_find_tie(const struct pen_partition *partition, struct pen_graph *const *graph,
                             struct pen_weight *weights, uint32_t count);

#endif
