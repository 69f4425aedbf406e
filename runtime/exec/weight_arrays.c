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
