/* copies.c: the bf16 copies that products read of f32 weights. */
#include "runtime/copies.h"

#include <stdlib.h>

#include "runtime/check.h"

void pen_weight_narrow(const struct pen_weight *weight, unsigned char *arena) {
  if (weight->copy_offset != UINT64_MAX) {
    pen_narrow((uint16_t *)(arena + weight->copy_offset), (const float *)(arena + weight->value_offset), (size_t)weight->count);
  }
}

void pen_weights_narrow(const struct pen_plan *plan, uint32_t rank, unsigned char *arena) {
  for (uint32_t i = 0; i < plan->weight_count; i++) {
    if (plan->weights[i].rank == rank) {
      pen_weight_narrow(&plan->weights[i], arena);
    }
  }
}

/* The tie whose head is on this rank and whose owner is not; null: none. */
static const struct pen_tie *tie_elsewhere(const struct pen_plan *plan, uint32_t rank, uint32_t weight_index) {
  for (uint32_t i = 0; i < plan->tie_count; i++) {
    const struct pen_tie *tie = &plan->ties[i];
    if (tie->weight == weight_index && tie->rank == rank && plan->weights[weight_index].rank != rank) {
      return tie;
    }
  }
  return NULL;
}

float *pen_value_take(const struct pen_plan *plan, uint32_t rank, unsigned char *arena, uint32_t weight_index) {
  const struct pen_weight *weight = &plan->weights[weight_index];
  const struct pen_tie *tie = tie_elsewhere(plan, rank, weight_index);
  if (tie == NULL) {
    return weight->rank == rank ? (float *)(arena + weight->value_offset) : NULL;
  }
  if (tie->dtype == PEN_F32) {
    return (float *)(arena + tie->value_offset);
  }
  float *value = malloc((size_t)weight->count * sizeof *value);
  if (value == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "tensor %s: out of memory", weight->name);
  }
  return value;
}

void pen_value_taken(const struct pen_plan *plan, uint32_t rank, unsigned char *arena, uint32_t weight_index, float *value) {
  const struct pen_tie *tie = tie_elsewhere(plan, rank, weight_index);
  if (tie != NULL && tie->dtype == PEN_BF16) {
    pen_narrow((uint16_t *)(arena + tie->value_offset), value, (size_t)plan->weights[weight_index].count);
    free(value);
  }
}
