/* replicas.h: the rows by which replicas come to one gradient, and to one weight where each updates
 * a part (plan.h, "Replicas"; ZeRO: Rajbhandari et al. 2020).
 *
 * A gradient is summed where its shards are: each replica adds up its own shard of all replicas'
 * gradients, in the order of the replicas, so that a sum has the same bits each run; then each has
 * what it needs of the others' shards. Over shared memory a peer's gradient is read where it lies.
 * A transport with collectives of its own would begin a reduce-scatter in GRAD_READY, end it in
 * REDUCE_SCATTER, and gather in ALL_GATHER_GRAD. */
#ifndef PEN_REPLICAS_H
#define PEN_REPLICAS_H

#include "runtime/exec/vm.h"

/* The rows of the exchange: see actions.def. They return false when the run was aborted. */
pen_handler pen_grad_ready, pen_reduce_scatter, pen_all_gather_gradients, pen_all_gather_weights,
    pen_unshard, pen_reshard;

/* Around a row of the exchange: waits for the peers as far as the row wants (false: aborted); says
 * that the row has ended. Both do nothing where there is one replica. */
bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action);
void pen_collective_end(struct pen_vm *vm);

/* What a row of the exchange goes through, whether it copies at once (replicas.c) or puts copies on
 * a device's queue (queue_replicas.c). */

/* Each of the stage's own weights that learn, by its index in the plan. */
void pen_each_own_weight(struct pen_vm *vm, const struct pen_action *action,
                         void (*function)(struct pen_vm *vm, uint32_t index));

/* What ALL_GATHER_WEIGHT copies of a weight: of its value, and of its copy in the model's dtype,
 * what all keep whole. `copy_shards` copies the peers' shards of a tensor that lies at `offset` in
 * every arena. */
typedef void pen_copy_shards(struct pen_vm *vm, uint32_t index, uint64_t offset,
                             size_t element_bytes);
void pen_copy_value(struct pen_vm *vm, uint32_t index, pen_copy_shards *copy_shards);

/* Each tensor that UNSHARD brings together, and where it goes. */
void pen_each_unsharded(struct pen_vm *vm, const struct pen_action *action,
                        void (*function)(struct pen_vm *vm, const struct pen_unsharded *tensor,
                                         unsigned char *to));

#endif
