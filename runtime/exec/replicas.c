/* replicas.c: the collectives between replicas (see replicas.h). All of them run on the compute
 * stream: the generator has put them where their rank has nothing else to do
 * (gen/timing/collectives.c). */
#include "runtime/exec/replicas.h"

#include "runtime/plan/shard.h"

bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action) {
  return vm->plan->replica_count == 1 ||
         vm->transport->ops->wait_peers(vm->transport, action->awaited_collective);
}

void pen_collective_end(struct pen_vm *vm) {
  if (vm->plan->replica_count > 1) {
    vm->transport->ops->signal_peers(vm->transport);
  }
}

bool pen_grad_ready(struct pen_vm *vm, const struct pen_action *action) {
  const bool going = pen_collective_begin(vm, action);
  pen_collective_end(vm);
  return going;
}

/* Calls a function for each of the action's stage's own weights that are trained. */
static void each_weight(struct pen_vm *vm, const struct pen_action *action,
                        void (*function)(struct pen_vm *vm, uint32_t weight)) {
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (vm->plan->weights[vm->weights[i]].stage == action->stage) {
      function(vm, vm->weights[i]);
    }
  }
}

static void sendrecv(struct pen_vm *vm, const struct pen_sendrecv *sendrecv) {
  vm->transport->ops->sendrecv(vm->transport, sendrecv);
}

/* ---- reduce-scatter ---- */

/* A peer's gradient of the own shard, in the staging memory, which each weight uses again: peers
 * have their place there by their order. */
static const float *receive_shard(struct pen_vm *vm, uint32_t index, uint32_t replica) {
  const struct pen_shard own = pen_shard_of(vm->plan, index, vm->replica),
                         other = pen_shard_of(vm->plan, index, replica);
  const uint64_t gradient = vm->plan->weights[index].gradient_offset;
  const uint64_t stride = pen_aligned(
      pen_shard_most(vm->plan->weights[index].count, vm->plan->replica_count) * sizeof(float));
  const uint64_t staging = vm->memory->shard_staging_offset;
  unsigned char *to = vm->arena + staging + (replica - (replica > vm->replica)) * stride;
  sendrecv(vm, &(struct pen_sendrecv){
                   .replica = replica,
                   .receive_offset = gradient + own.first * sizeof(float),
                   .receive_bytes = own.count * sizeof(float),
                   .to = to,
                   .send_offset = gradient + other.first * sizeof(float),
                   .send_bytes = other.count * sizeof(float),
                   .target_offset = staging + (vm->replica - (vm->replica > replica)) * stride});
  return (const float *)to;
}

static void sum_own_shard(struct pen_vm *vm, uint32_t index) {
  const struct pen_transport_ops *ops = vm->transport->ops;
  const struct pen_shard shard = pen_shard_of(vm->plan, index, vm->replica);
  const uint64_t at = vm->plan->weights[index].gradient_offset + shard.first * sizeof(float);
  ops->group_begin(vm->transport);
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const unsigned char *arena =
        replica == vm->replica ? vm->arena : ops->peer_arena(vm->transport, replica);
    vm->sources[replica] =
        arena == NULL ? receive_shard(vm, index, replica) : (const float *)(arena + at);
  }
  ops->group_end(vm->transport);
  vm->device->sum_arrays((float *)(vm->arena + at), vm->sources, vm->plan->replica_count,
                         shard.count, vm->streams.compute);
}

bool pen_reduce_scatter(struct pen_vm *vm, const struct pen_action *action) {
  pen_wait_sends(vm, action);
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  each_weight(vm, action, sum_own_shard);
  pen_collective_end(vm);
  return true;
}

/* ---- all-gather ---- */

static bool begin_gather(struct pen_vm *vm, const struct pen_action *action) {
  pen_wait_sends(vm, action);
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  vm->transport->ops->group_begin(vm->transport);
  return true;
}

static bool end_gather(struct pen_vm *vm) {
  vm->transport->ops->group_end(vm->transport);
  pen_collective_end(vm);
  return true;
}

/* Gathers the peers' shards of a tensor that all keep whole at `offset`. */
static void gather_shards(struct pen_vm *vm, uint32_t index, uint64_t offset,
                          size_t element_bytes) {
  const struct pen_shard own = pen_shard_of(vm->plan, index, vm->replica);
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, index, replica);
    const uint64_t at = offset + shard.first * element_bytes;
    if (replica != vm->replica) {
      sendrecv(vm, &(struct pen_sendrecv){.replica = replica,
                                          .receive_offset = at,
                                          .receive_bytes = shard.count * element_bytes,
                                          .to = vm->arena + at,
                                          .send_offset = offset + own.first * element_bytes,
                                          .send_bytes = own.count * element_bytes,
                                          .target_offset = offset + own.first * element_bytes});
    }
  }
}

static void gather_gradient(struct pen_vm *vm, uint32_t index) {
  gather_shards(vm, index, vm->plan->weights[index].gradient_offset, sizeof(float));
}

/* Of a weight's value, and of its copy in the model's dtype, what all keep whole. */
static void gather_value(struct pen_vm *vm, uint32_t index) {
  const struct pen_weight *weight = &vm->plan->weights[index];
  if (!weight->value_sharded) {
    gather_shards(vm, index, weight->value_offset, sizeof(float));
  }
  if (weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded) {
    gather_shards(vm, index, weight->bf16_offset, sizeof(uint16_t));
  }
}

bool pen_all_gather_gradients(struct pen_vm *vm, const struct pen_action *action) {
  if (!begin_gather(vm, action)) {
    return false;
  }
  each_weight(vm, action, gather_gradient);
  return end_gather(vm);
}

bool pen_all_gather_weights(struct pen_vm *vm, const struct pen_action *action) {
  if (!begin_gather(vm, action)) {
    return false;
  }
  each_weight(vm, action, gather_value);
  return end_gather(vm);
}

/* ---- UNSHARD ---- */

/* One tensor of the buffer, from the shard that each replica keeps. */
static void gather_tensor(struct pen_vm *vm, const struct pen_unsharded *tensor,
                          unsigned char *to) {
  const struct pen_shard own = pen_shard_of(vm->plan, tensor->weight, vm->replica);
  const uint64_t own_bytes = own.count * tensor->element_bytes;
  if (own_bytes > 0) {
    vm->device->copy(to + own.first * tensor->element_bytes, vm->arena + tensor->shard_offset,
                     own_bytes, vm->streams.compute);
  }
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, tensor->weight, replica);
    if (replica != vm->replica) {
      sendrecv(vm, &(struct pen_sendrecv){.replica = replica,
                                          .receive_offset = tensor->shard_offset,
                                          .receive_bytes = shard.count * tensor->element_bytes,
                                          .to = to + shard.first * tensor->element_bytes,
                                          .send_offset = tensor->shard_offset,
                                          .send_bytes = own_bytes,
                                          .target_offset = (uint64_t)(to - vm->arena) +
                                                           own.first * tensor->element_bytes});
    }
  }
}

bool pen_unshard(struct pen_vm *vm, const struct pen_action *action) {
  unsigned char *buffer = vm->arena + vm->program->frames[action->frame].base[PEN_BASE_UNSHARDED];
  if (!begin_gather(vm, action)) {
    return false;
  }
  for (uint32_t i = 0; i < vm->unsharded_count; i++) {
    if (vm->unsharded[i].stage == action->stage) {
      gather_tensor(vm, &vm->unsharded[i], buffer + vm->unsharded[i].offset);
    }
  }
  return end_gather(vm);
}

bool pen_reshard(struct pen_vm *vm, const struct pen_action *action) {
  return (void)vm, (void)action, true; /* the buffer is free again: nothing to do */
}
