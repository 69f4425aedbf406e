/* rank_context.h: what the checks of tables and bytes know of one rank of one profile. */
#ifndef PEN_RANK_CONTEXT_H
#define PEN_RANK_CONTEXT_H

#include "gen/verify/action_index.h"
#include "runtime/plan/audit_sum.h"
#include "runtime/plan/plan.h"

/* What a persistent tensor is, found by its address, or by its base. */
enum pen_use {
  PEN_USE_LOCAL,
  PEN_USE_WEIGHT,
  PEN_USE_SHARD, /* the rank's shard of a weight */
  PEN_USE_GRADIENT,
  PEN_USE_CONSTANT,
  PEN_USE_CACHE, /* keys or values (base CACHE) */
  PEN_USE_COUNTS /* the choices of a router */
};

struct pen_rank_context {
  const struct pen_check_context *checked;
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_rank_program *tables;
  const struct pen_rank_memory *memory;
  uint32_t rank;
  uint32_t tensor_rank; /* the tensor rank whose weights and dims these are */
  uint32_t split_count; /* of each tensor that is split; 1: none is */
  uint32_t own_weight_count;
  const uint32_t *own_weight; /* [own_weight_count]: the rank's weights, indices into the plan's */
  const uint32_t
      *own_weight_index; /* [weight of the plan]: its index among the weights of its rank */
  uint8_t *use;          /* [tensor]: enum pen_use */
  uint32_t *weight;  /* [tensor]: index into the plan's weights, or PEN_NONE; weight_count + the tie
                        of a head's gradient */
  bool *received;    /* [tensor]: comes by message */
  bool *has_sum;     /* [tensor]: a checksum follows it (memory.audit) */
  uint32_t *same_as; /* [tensor]: the neighbour stage's tensor on this rank that is the same value,
                        or itself */
};

/* Where activations end: in the profiles of generation the cache follows. */
static inline uint64_t pen_activations_end(const struct pen_profile *profile,
                                           const struct pen_rank_memory *memory) {
  return pen_profile_kind_generates(profile->kind) ? memory->cache_offset : memory->arena_bytes;
}

/* Bytes of a tensor, with the checksum that follows it. */
static inline uint64_t pen_extent_bytes(const struct pen_rank_context *b, uint32_t tensor) {
  return pen_bytes_passed(b->has_sum[tensor], b->tables->tensors[tensor].bytes);
}

#endif
