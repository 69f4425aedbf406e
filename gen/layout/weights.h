/* weights.h: the weights of all stages, in model order. */
#ifndef PEN_WEIGHTS_H
#define PEN_WEIGHTS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

/* All weights, without offsets; first_weight[stage] is the index of the stage's first. The plan
 * gets their number, and that of their tensors. */
struct pen_weight *pen_list_weights(const struct pen_partition *partition,
                                    struct pen_graph *const *graph, uint32_t *first_weight,
                                    struct pen_plan *plan);
/* The matrix that the head shares with the embedding, a row for each of its splits in their order,
 * without offsets; *count 0: none. In a bf16 plan the head's products read copies, which the owner
 * writes. */
struct pen_tie *pen_find_ties(const struct pen_partition *partition, struct pen_graph *const *graph,
                              struct pen_weight *weights, uint32_t weight_count, uint32_t *count);

/* The bytes of what the head reads of a tied weight that another rank updates: with memory.audit a
 * checksum follows. */
uint64_t pen_tied_value_bytes(const struct pen_plan *plan, const struct pen_tie *tie);

/* The bytes of a message of all ties of a tensor rank, which lie side by side, each aligned: what
 * the head reads (PEN_SEND_V), or the head's gradients or their shards (PEN_SEND_G). */
uint64_t pen_tied_message_bytes(const struct pen_plan *plan, int kind);

#endif
