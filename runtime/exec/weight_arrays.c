/* weight_arrays.c: addresses of a weight, its gradient and moments (see weight_arrays.h). */
#include "runtime/exec/weight_arrays.h"

float *pen_gradient_shard(const struct pen_vm *vm, uint32_t weight, struct pen_shard shard) {
  const struct pen_weight *w = &vm->plan->weights[weight];
  return (float *)(vm->arena + w->gradient_offset) + (w->gradient_sharded ? 0 : shard.first);
}

struct pen_weight_arrays pen_weight_arrays_of(const struct pen_vm *vm, uint32_t weight) {
  const struct pen_weight *w = &vm->plan->weights[weight];
  const struct pen_shard own =
      pen_kept_of(vm->plan, weight, vm->replica, pen_moments_are_sharded(vm->plan));
  return (struct pen_weight_arrays){
      .value = (float *)(vm->arena + w->value_offset) + (w->value_sharded ? 0 : own.first),
      .gradient = pen_gradient_shard(vm, weight, own),
      .exp_avg = (float *)(vm->arena + w->exp_avg_offset),
      .exp_avg_sq = (float *)(vm->arena + w->exp_avg_sq_offset),
      .bf16 = w->bf16_offset == UINT64_MAX
                  ? NULL
                  : (uint16_t *)(vm->arena + w->bf16_offset) + (w->bf16_sharded ? 0 : own.first),
      .own = own,
      .weight_decay = w->weight_decay};
}

uint32_t pen_weight_at(const struct pen_vm *vm, uint64_t offset, bool gradients) {
  const struct pen_plan *plan = vm->plan;
  for (uint32_t i = 0; i < pen_member_tie_count(plan); i++) {
    const struct pen_tie *tie = &plan->ties[pen_member_tie(plan, vm->endpoint->tensor_rank) + i];
    if (tie->rank == vm->rank && (gradients ? tie->gradient_offset : tie->value_offset) == offset) {
      return tie->weight;
    }
  }
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &plan->weights[w];
    if (pen_vm_has_weight(vm, w) &&
        (weight->value_offset == offset || weight->bf16_offset == offset ||
         (gradients && weight->gradient_offset == offset))) {
      return w;
    }
  }
  return PEN_NONE;
}
