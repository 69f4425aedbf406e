/* shard.h: which elements of a tensor each replica owns. */
#ifndef PEN_SHARD_H
#define PEN_SHARD_H

#include "runtime/plan/plan.h"

/* Elements [first, first + count) of a tensor. */
struct pen_shard {
  uint64_t first, count;
};

/* Shard `index` of `shards` of a tensor of `count` elements. Bounds are multiples of
 * PEN_NORM_BLOCK, so that the sum of squares of a tensor has the same bits for any number of
 * shards. */
static inline struct pen_shard pen_shard_at(uint64_t count, uint32_t shards, uint32_t index) {
  uint64_t blocks = (count + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK;
  uint64_t first = blocks * index / shards * PEN_NORM_BLOCK,
           past = blocks * (index + 1) / shards * PEN_NORM_BLOCK;
  return (struct pen_shard){first, (past < count ? past : count) - first};
}

/* Elements of the largest shard. The last shard has as many blocks as any other, but its last block
 * may be partial. */
static inline uint64_t pen_shard_most(uint64_t count, uint32_t shards) {
  uint64_t blocks = (count + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK,
           most = (blocks + shards - 1) / shards * PEN_NORM_BLOCK;
  bool last_is_largest = shards == 1 || blocks % shards == 1;
  return last_is_largest ? most - (blocks * PEN_NORM_BLOCK - count) : most;
}

/* Bytes of the largest shard of an f32 tensor, aligned. */
static inline uint64_t pen_shard_bytes(uint64_t count, uint32_t shards) {
  return pen_aligned(pen_shard_most(count, shards) * sizeof(float));
}

/* The shard of weight `weight` (its index) that a replica owns, of `shards` in its group. It
 * rotates with the weight, so that tensors of one block are spread over the replicas, too. */
static inline uint32_t pen_shard_index(uint32_t weight, uint32_t replica, uint32_t shards) {
  return (replica + shards - weight % shards) % shards;
}

/* The shard of a weight, of its gradient and of its moments that a replica owns. */
static inline struct pen_shard pen_shard_of(const struct pen_plan *plan, uint32_t weight,
                                            uint32_t replica) {
  return pen_shard_at(plan->weights[weight].count, plan->shard_ranks,
                      pen_shard_index(weight, replica, plan->shard_ranks));
}

/* Whether two replicas share one set of shards. */
static inline bool pen_same_shard_group(const struct pen_plan *plan, uint32_t replica,
                                        uint32_t other) {
  return replica / plan->shard_ranks == other / plan->shard_ranks;
}

/* The elements that a replica keeps of a tensor of the weight's size: its shard when the tensor is
 * sharded, else all. */
static inline struct pen_shard pen_kept_of(const struct pen_plan *plan, uint32_t weight,
                                           uint32_t replica, bool is_sharded) {
  return is_sharded ? pen_shard_of(plan, weight, replica)
                    : (struct pen_shard){0, plan->weights[weight].count};
}

/* Whether peers may be in other replicas whose memory this rank cannot read: they send what it
 * sums. */
static inline bool pen_peers_send_shards(const struct pen_plan *plan) {
  return plan->replica_count > 1 && !pen_transport_row(plan->transport)->reads_peers;
}

static inline bool pen_moments_are_sharded(const struct pen_plan *plan) {
  return plan->sharding != PEN_SHARD_NONE;
}

static inline bool pen_gradients_are_sharded(const struct pen_plan *plan) {
  return plan->reduces_microbatches && plan->sharding >= PEN_SHARD_GRADIENTS;
}

#endif
