/* shard.h: which elements of a tensor each data rank owns. */
#ifndef PEN_SHARD_H
#define PEN_SHARD_H

#include "runtime/plan/plan.h"

/* Elements [first, first + count) of a tensor. */
struct pen_shard {
  uint64_t first, count;
};

/* The elements that two have in common; none: `first` is that of one of them. */
static inline struct pen_shard pen_shard_common(struct pen_shard a, struct pen_shard b) {
  const uint64_t first = a.first > b.first ? a.first : b.first, past_a = a.first + a.count,
                 past_b = b.first + b.count, past = past_a < past_b ? past_a : past_b;
  return past > first ? (struct pen_shard){first, past - first} : (struct pen_shard){a.first, 0};
}

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

/* How a weight is divided: blocks begin anew at each tensor of a stack. */
struct pen_division {
  uint64_t count; /* elements */
  uint32_t sole_owner, shards, tensors;
};

/* Where a block begins; past the last: where that ends. */
static inline uint64_t pen_block_first(struct pen_division d, uint64_t blocks, uint64_t block) {
  const uint64_t each = blocks / d.tensors;
  return block / each * (d.count / d.tensors) + block % each * PEN_NORM_BLOCK;
}

static inline uint64_t pen_blocks_in(struct pen_division d) {
  return d.tensors * ((d.count / d.tensors + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK);
}

/* Shard `index` of it: with a sole owner its first is all of it. */
static inline struct pen_shard pen_shard_in(struct pen_division d, uint32_t index) {
  if (d.sole_owner) return (struct pen_shard){0, index == 0 ? d.count : 0};
  if (d.tensors == 1) return pen_shard_at(d.count, d.shards, index);
  const uint64_t blocks = pen_blocks_in(d),
                 first = pen_block_first(d, blocks, blocks * index / d.shards),
                 past = pen_block_first(d, blocks, blocks * (index + 1) / d.shards);
  return (struct pen_shard){first, past - first};
}

/* Elements of the largest. */
static inline uint64_t pen_largest_in(struct pen_division d) {
  uint64_t most = 0;
  if (d.sole_owner || d.tensors == 1)
    return d.sole_owner ? d.count : pen_shard_most(d.count, d.shards);
  for (uint32_t index = 0; index < d.shards; index++) {
    const uint64_t count = pen_shard_in(d, index).count;
    most = count > most ? count : most;
  }
  return most;
}

/* The most blocks of one. */
static inline uint64_t pen_most_blocks_in(struct pen_division d) {
  return d.sole_owner ? pen_blocks_in(d) : (pen_blocks_in(d) + d.shards - 1) / d.shards;
}

static inline struct pen_division pen_division_of(const struct pen_weight *weight,
                                                  uint32_t shards) {
  return (struct pen_division){weight->count, weight->sole_owner, shards, pen_tensor_count(weight)};
}

/* The shard of weight `weight` (its index) that a data rank, or the member of its shard group that
 * it is, owns. It rotates with the weight, so that tensors of one block are spread over the data
 * ranks, too; that of a sole owner is the first. */
static inline uint32_t pen_shard_index(struct pen_division d, uint32_t weight, uint32_t data_rank) {
  const uint32_t first = d.sole_owner ? d.sole_owner - 1 : weight;
  return (data_rank + d.shards - first % d.shards) % d.shards;
}

/* The same: the shard of a weight, of its gradient and of its moments. */
static inline struct pen_shard pen_shard_of(const struct pen_plan *plan, uint32_t weight,
                                            uint32_t data_rank) {
  const struct pen_division d =
      pen_division_of(&plan->weights[weight], pen_group_size(plan, PEN_SHARD));
  return pen_shard_in(d, pen_shard_index(d, weight, data_rank));
}

/* The data rank of the first shard group that owns a shard of a weight; with a sole owner those of
 * others have no elements, in whatever order. */
static inline uint32_t pen_shard_owner(const struct pen_plan *plan, uint32_t weight,
                                       uint32_t shard) {
  return (uint32_t)(((uint64_t)weight + shard) % pen_group_size(plan, PEN_SHARD));
}

/* Elements of the largest shard of a weight. */
static inline uint64_t pen_shard_most_of(const struct pen_plan *plan, uint32_t weight) {
  return pen_largest_in(pen_division_of(&plan->weights[weight], pen_group_size(plan, PEN_SHARD)));
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
