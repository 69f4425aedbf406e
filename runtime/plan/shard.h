/* shard.h: which elements of a tensor each data rank owns. */
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

/* The shard of weight `weight` (its index) that a data rank, or the member of its shard group that
 * it is, owns, of `shards`. It rotates with the weight, so that tensors of one block are spread
 * over the data ranks, too. */
static inline uint32_t pen_shard_index(uint32_t weight, uint32_t data_rank, uint32_t shards) {
  return (data_rank + shards - weight % shards) % shards;
}

/* The same: the shard of a weight, of its gradient and of its moments. */
static inline struct pen_shard pen_shard_of(const struct pen_plan *plan, uint32_t weight,
                                            uint32_t data_rank) {
  const uint32_t shards = pen_group_size(plan, PEN_SHARD);
  return pen_shard_at(plan->weights[weight].count, shards,
                      pen_shard_index(weight, data_rank, shards));
}

/* The data rank of the first shard group that owns a shard of a weight. */
static inline uint32_t pen_shard_owner(const struct pen_plan *plan, uint32_t weight,
                                       uint32_t shard) {
  return (uint32_t)(((uint64_t)weight + shard) % pen_group_size(plan, PEN_SHARD));
}

/* Elements of the largest shard of a weight. */
static inline uint64_t pen_shard_most_of(const struct pen_plan *plan, uint32_t weight) {
  return pen_shard_most(plan->weights[weight].count, pen_group_size(plan, PEN_SHARD));
}

/* The elements that a data rank keeps of a tensor of the weight's size: its shard when the tensor
 * is sharded, else all. */
static inline struct pen_shard pen_kept_of(const struct pen_plan *plan, uint32_t weight,
                                           uint32_t data_rank, bool is_sharded) {
  return is_sharded ? pen_shard_of(plan, weight, data_rank)
                    : (struct pen_shard){0, plan->weights[weight].count};
}

/* Whether peers may be in other replicas whose memory this rank cannot read: they send what it
 * sums. */
static inline bool pen_peers_send_shards(const struct pen_plan *plan) {
  return pen_group_size(plan, PEN_DATA) > 1 && !pen_transport_row(plan->transport)->reads_peers;
}

static inline bool pen_moments_are_sharded(const struct pen_plan *plan) {
  return plan->sharding != PEN_SHARD_NONE;
}

static inline bool pen_gradients_are_sharded(const struct pen_plan *plan) {
  return plan->reduces_microbatches && plan->sharding >= PEN_SHARD_GRADIENTS;
}

#endif
