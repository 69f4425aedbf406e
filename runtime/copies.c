/* copies.c: the bf16 copies that products read of f32 weights. */
#include "runtime/copies.h"

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
