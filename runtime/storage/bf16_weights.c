/* bf16_weights.c: the bf16 copies of f32 weights that products read, and where a weight is stored
 * when it is loaded from a file or made from a seed. */
#include "kernels/kernels.h"
#include "runtime/plan/shard.h"
#include "runtime/storage/bf16_weights.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

void pen_weight_to_bf16(const struct pen_weight *weight, struct pen_shard shard,
                        unsigned char *arena) {
  if (weight->bf16_offset != UINT64_MAX) {
    const float *value =
        (const float *)(arena + weight->value_offset) + (weight->value_sharded ? 0 : shard.first);
    uint16_t *copy =
        (uint16_t *)(arena + weight->bf16_offset) + (weight->bf16_sharded ? 0 : shard.first);
    pen_f32_to_bf16(copy, value, (size_t)shard.count);
  }
}

/* The tie of the weight, if it is one of the member's, whose head is on this rank and whose owner
 * is not; null: none. */
static const struct pen_tie *tie_elsewhere(const struct pen_plan *plan, struct pen_coordinates at,
                                           uint32_t weight_index) {
  for (uint32_t i = 0; i < pen_member_tie_count(plan); i++) {
    const struct pen_tie *tie = &plan->ties[pen_member_tie(plan, at.tensor_rank) + i];
    if (tie->weight == weight_index && tie->rank == at.rank &&
        plan->weights[weight_index].rank != at.rank) {
      return tie;
    }
  }
  return NULL;
}

float *pen_weight_buffer(const struct pen_weight *weight) {
  float *value = malloc((size_t)weight->count * sizeof *value);
  if (value == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "tensor %s: out of memory", weight->name);
  }
  return value;
}

float *pen_value_destination(const struct pen_plan *plan, uint32_t global, unsigned char *arena,
                             uint32_t weight_index) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  const struct pen_coordinates at = pen_coordinates_of(plan, global);
  const struct pen_tie *tie = tie_elsewhere(plan, at, weight_index);
  if (pen_has_weight(plan, weight, at)) {
    return weight->value_sharded ? pen_weight_buffer(weight)
                                 : (float *)(arena + weight->value_offset);
  }
  if (tie == NULL) {
    return NULL;
  }
  return tie->dtype == PEN_F32 ? (float *)(arena + tie->value_offset) : pen_weight_buffer(weight);
}

/* Keeps the own shard; products read the copy, whole or all-gathered. */
static void keep_shard(const struct pen_plan *plan, uint32_t replica, unsigned char *arena,
                       uint32_t weight_index, const float *value) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  struct pen_shard own = pen_kept_of(plan, weight_index, replica, true);
  if (weight->value_offset != UINT64_MAX) {
    memcpy(arena + weight->value_offset, value + own.first, own.count * sizeof *value);
  }
  if (weight->bf16_offset != UINT64_MAX) {
    struct pen_shard copied = pen_kept_of(plan, weight_index, replica, weight->bf16_sharded);
    pen_f32_to_bf16((uint16_t *)(arena + weight->bf16_offset), value + copied.first,
                    (size_t)copied.count);
  }
}

void pen_value_loaded(const struct pen_plan *plan, uint32_t global, unsigned char *arena,
                      uint32_t weight_index, float *value) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  const struct pen_coordinates at = pen_coordinates_of(plan, global);
  const struct pen_tie *tie = tie_elsewhere(plan, at, weight_index);
  const bool has = pen_has_weight(plan, weight, at);
  if (has && weight->value_sharded) {
    keep_shard(plan, at.replica, arena, weight_index, value);
    free(value);
  } else if (has) {
    pen_weight_to_bf16(weight, (struct pen_shard){0, weight->count}, arena);
  } else if (tie->dtype == PEN_BF16) {
    pen_f32_to_bf16((uint16_t *)(arena + tie->value_offset), value, (size_t)weight->count);
    free(value);
  }
}
