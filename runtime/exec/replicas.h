/* replicas.h: the collectives between replicas, by which they come to one gradient, and to one
 * weight where each updates a shard (plan.h, "Replicas"; ZeRO: Rajbhandari et al. 2020).
 *
 * A gradient is summed where its shards are: each replica adds its own shard of all replicas'
 * gradients, in the order of the replicas, so that a sum has the same bits in each run; then each
 * gets what it needs of the others' shards. A peer's gradient is read in place where the transport
 * reaches its arena, else exchanged by sends and receives. */
#ifndef PEN_REPLICAS_H
#define PEN_REPLICAS_H

#include "runtime/exec/exec.h"

/* Handlers: see actions.def. */
pen_handler pen_grad_ready, pen_reduce_scatter, pen_reduce_groups, pen_gather_groups,
    pen_all_gather_gradients, pen_all_gather_weights, pen_unshard, pen_reshard;

/* The arena of a member of a group of the process; null where it is not reached. */
const unsigned char *pen_member_arena(const struct pen_vm *vm, int group, uint32_t member);

/* Gathers a tensor from the shard that each replica keeps; within a group of the transport. */
void pen_gather_shards_to(struct pen_vm *vm, const struct pen_unsharded *tensor, unsigned char *to);

/* Before and after a collective: waits for the peers as far as the action needs them (false:
 * aborted); signals that it has ended. Both do nothing where there is one replica. */
bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action);
void pen_collective_end(struct pen_vm *vm);

#endif
