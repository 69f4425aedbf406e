/* replicas.c: the rows of the exchange between replicas (see replicas.h). */
#include "kernels/kernels.h"
#include "runtime/exec/replicas.h"
#include "runtime/plan/shard.h"

#include <string.h>

bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action) {
  return vm->plan->replica_count == 1 ||
         vm->transport->kind->peers_reached(vm->transport, action->awaited_collective);
}

void pen_collective_end(struct pen_vm *vm) {
  if (vm->plan->replica_count > 1) {
    vm->transport->kind->exchanged(vm->transport);
  }
}

/* Where the elements of a weight's gradient from `first` on lie in a replica's memory. */
static float *gradient_at(const struct pen_vm *vm, const struct pen_weight *weight,
                          uint32_t replica, uint64_t first) {
  unsigned char *arena = vm->transport->kind->peer_arena(vm->transport, replica);
  return (float *)(arena + weight->gradient_offset) + first;
}

void pen_each_own_weight(struct pen_vm *vm, const struct pen_action *action,
                         void (*function)(struct pen_vm *vm, uint32_t index)) {
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (vm->plan->weights[vm->weights[i]].stage == action->stage) {
      function(vm, vm->weights[i]);
    }
  }
}

void pen_copy_value(struct pen_vm *vm, uint32_t index, pen_copy_shards *copy_shards) {
  const struct pen_weight *weight = &vm->plan->weights[index];
  if (!weight->value_sharded) {
    copy_shards(vm, index, weight->value_offset, sizeof(float));
  }
  if (weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded) {
    copy_shards(vm, index, weight->bf16_offset, sizeof(uint16_t));
  }
}

void pen_each_unsharded(struct pen_vm *vm, const struct pen_action *action,
                        void (*function)(struct pen_vm *vm, const struct pen_unsharded *tensor,
                                         unsigned char *to)) {
  unsigned char *block = vm->arena + vm->program->frames[action->frame].base[PEN_BASE_UNSHARDED];
  for (uint32_t i = 0; i < vm->unsharded_count; i++) {
    if (vm->unsharded[i].stage == action->stage) {
      function(vm, &vm->unsharded[i], block + vm->unsharded[i].offset);
    }
  }
}

bool pen_grad_ready(struct pen_vm *vm, const struct pen_action *action) {
  bool going = pen_collective_begin(vm, action);
  pen_collective_end(vm);
  return going;
}

static void sum_own_shard(struct pen_vm *vm, uint32_t index) {
  const struct pen_weight *weight = &vm->plan->weights[index];
  struct pen_shard shard = pen_shard_of(vm->plan, index, vm->replica);
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    vm->sources[replica] = gradient_at(vm, weight, replica, shard.first);
  }
  pen_sum_arrays(gradient_at(vm, weight, vm->replica, shard.first), vm->sources,
                 vm->plan->replica_count, shard.count);
}

/* Copies the peers' shards of a tensor that all keep whole at `offset`. */
static void copy_shards(struct pen_vm *vm, uint32_t index, uint64_t offset, size_t element_bytes) {
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    struct pen_shard shard = pen_shard_of(vm->plan, index, replica);
    uint64_t at = offset + shard.first * element_bytes;
    if (replica != vm->replica) {
      memcpy(vm->arena + at, vm->transport->kind->peer_arena(vm->transport, replica) + at,
             shard.count * element_bytes);
    }
  }
}

static void copy_gradient(struct pen_vm *vm, uint32_t index) {
  copy_shards(vm, index, vm->plan->weights[index].gradient_offset, sizeof(float));
}

static void copy_value(struct pen_vm *vm, uint32_t index) {
  pen_copy_value(vm, index, copy_shards);
}

/* A row that does something for each weight of its stage, once its peers are there. */
static bool exchange(struct pen_vm *vm, const struct pen_action *action,
                     void (*function)(struct pen_vm *vm, uint32_t weight)) {
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  pen_each_own_weight(vm, action, function);
  pen_collective_end(vm);
  return true;
}

bool pen_reduce_scatter(struct pen_vm *vm, const struct pen_action *action) {
  return exchange(vm, action, sum_own_shard);
}
bool pen_all_gather_gradients(struct pen_vm *vm, const struct pen_action *action) {
  return exchange(vm, action, copy_gradient);
}
bool pen_all_gather_weights(struct pen_vm *vm, const struct pen_action *action) {
  return exchange(vm, action, copy_value);
}

/* One tensor of the block, from the shards that lie where each replica keeps its own. */
static void bring_together(struct pen_vm *vm, const struct pen_unsharded *tensor,
                           unsigned char *to) {
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    struct pen_shard shard = pen_shard_of(vm->plan, tensor->weight, replica);
    memcpy(to + shard.first * tensor->element_bytes,
           vm->transport->kind->peer_arena(vm->transport, replica) + tensor->shard_offset,
           shard.count * tensor->element_bytes);
  }
}

bool pen_unshard(struct pen_vm *vm, const struct pen_action *action) {
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  pen_each_unsharded(vm, action, bring_together);
  pen_collective_end(vm);
  return true;
}

bool pen_reshard(struct pen_vm *vm, const struct pen_action *action) {
  (void)vm, (void)action;
  return true;
}
