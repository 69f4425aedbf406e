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

/* ---- sums ---- */

/* The replicas that sum a gradient with this one, and what each sums: those of its shard group, and
 * each its shard; or those that have its shard in the other groups, and each a piece of it. */
struct members {
  uint32_t count;
  bool are_groups;
};

static struct members members_of(const struct pen_plan *plan, bool are_groups) {
  return (struct members){are_groups ? plan->replica_count / plan->shard_ranks : plan->shard_ranks,
                          are_groups};
}

static uint32_t member_replica(const struct pen_vm *vm, struct members members, uint32_t member) {
  const uint32_t shards = vm->plan->shard_ranks;
  return members.are_groups ? member * shards + vm->replica % shards
                            : vm->replica / shards * shards + member;
}

/* The elements of the stored gradient that a replica sums. */
static struct pen_shard summed_by(const struct pen_vm *vm, struct members members, uint32_t index,
                                  uint32_t replica) {
  const struct pen_shard shard = pen_shard_of(vm->plan, index, replica);
  if (!members.are_groups) {
    return shard;
  }
  const struct pen_shard piece =
      pen_shard_at(shard.count, members.count, replica / vm->plan->shard_ranks);
  const uint64_t first = vm->plan->weights[index].gradient_sharded ? 0 : shard.first;
  return (struct pen_shard){first + piece.first, piece.count};
}

/* A peer's gradient of what this replica sums, in the staging memory, which each weight uses again:
 * peers have their place there by their order. */
static const float *receive_summand(struct pen_vm *vm, struct members members, uint32_t index,
                                    uint32_t replica) {
  const struct pen_shard own = summed_by(vm, members, index, vm->replica),
                         other = summed_by(vm, members, index, replica);
  const uint64_t gradient = vm->plan->weights[index].gradient_offset;
  const uint64_t most = pen_shard_most(vm->plan->weights[index].count, vm->plan->shard_ranks),
                 stride = members.are_groups ? pen_shard_bytes(most, members.count)
                                             : pen_aligned(most * sizeof(float));
  const uint64_t staging = vm->memory->shard_staging_offset;
  const uint32_t shards = vm->plan->shard_ranks,
                 from = members.are_groups ? replica / shards : replica % shards,
                 to = members.are_groups ? vm->replica / shards : vm->replica % shards;
  unsigned char *at = vm->arena + staging + (from - (from > to)) * stride;
  sendrecv(vm, &(struct pen_sendrecv){.replica = replica,
                                      .receive_offset = gradient + own.first * sizeof(float),
                                      .receive_bytes = own.count * sizeof(float),
                                      .to = at,
                                      .send_offset = gradient + other.first * sizeof(float),
                                      .send_bytes = other.count * sizeof(float),
                                      .target_offset = staging + (to - (to > from)) * stride});
  return (const float *)at;
}

static void sum_gradient(struct pen_vm *vm, struct members members, uint32_t index) {
  const struct pen_transport_ops *ops = vm->transport->ops;
  const struct pen_shard own = summed_by(vm, members, index, vm->replica);
  const uint64_t at = vm->plan->weights[index].gradient_offset + own.first * sizeof(float);
  ops->group_begin(vm->transport);
  for (uint32_t member = 0; member < members.count; member++) {
    const uint32_t replica = member_replica(vm, members, member);
    const unsigned char *arena =
        replica == vm->replica ? vm->arena : ops->peer_arena(vm->transport, replica);
    vm->sources[member] =
        arena == NULL ? receive_summand(vm, members, index, replica) : (const float *)(arena + at);
  }
  ops->group_end(vm->transport);
  vm->device->sum_arrays((float *)(vm->arena + at), vm->sources, members.count, own.count,
                         vm->streams.compute);
}

static void sum_over_group(struct pen_vm *vm, uint32_t index) {
  sum_gradient(vm, members_of(vm->plan, false), index);
}

static void sum_over_groups(struct pen_vm *vm, uint32_t index) {
  sum_gradient(vm, members_of(vm->plan, true), index);
}

static bool sum_gradients(struct pen_vm *vm, const struct pen_action *action,
                          void (*sum)(struct pen_vm *vm, uint32_t index)) {
  pen_wait_sends(vm, action);
  if (!pen_collective_begin(vm, action)) {
    return false;
  }
  each_weight(vm, action, sum);
  pen_collective_end(vm);
  return true;
}

bool pen_reduce_scatter(struct pen_vm *vm, const struct pen_action *action) {
  return sum_gradients(vm, action, sum_over_group);
}

bool pen_reduce_groups(struct pen_vm *vm, const struct pen_action *action) {
  return sum_gradients(vm, action, sum_over_groups);
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
    if (replica != vm->replica && pen_same_shard_group(vm->plan, replica, vm->replica)) {
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

/* The pieces that other groups have summed of the own shard. */
static void gather_pieces(struct pen_vm *vm, uint32_t index) {
  const struct members members = members_of(vm->plan, true);
  const uint64_t gradient = vm->plan->weights[index].gradient_offset;
  const struct pen_shard own = summed_by(vm, members, index, vm->replica);
  for (uint32_t member = 0; member < members.count; member++) {
    const uint32_t replica = member_replica(vm, members, member);
    const struct pen_shard piece = summed_by(vm, members, index, replica);
    const uint64_t at = gradient + piece.first * sizeof(float);
    if (replica != vm->replica) {
      sendrecv(vm, &(struct pen_sendrecv){.replica = replica,
                                          .receive_offset = at,
                                          .receive_bytes = piece.count * sizeof(float),
                                          .to = vm->arena + at,
                                          .send_offset = gradient + own.first * sizeof(float),
                                          .send_bytes = own.count * sizeof(float),
                                          .target_offset = gradient + own.first * sizeof(float)});
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

bool pen_gather_groups(struct pen_vm *vm, const struct pen_action *action) {
  if (!begin_gather(vm, action)) {
    return false;
  }
  each_weight(vm, action, gather_pieces);
  return end_gather(vm);
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

void pen_gather_shards_to(struct pen_vm *vm, const struct pen_unsharded *tensor,
                          unsigned char *to) {
  const struct pen_shard own = pen_shard_of(vm->plan, tensor->weight, vm->replica);
  const uint64_t own_bytes = own.count * tensor->element_bytes;
  if (own_bytes > 0) {
    vm->device->copy(to + own.first * tensor->element_bytes, vm->arena + tensor->shard_offset,
                     own_bytes, vm->transport->collective_stream);
  }
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, tensor->weight, replica);
    if (replica != vm->replica && pen_same_shard_group(vm->plan, replica, vm->replica)) {
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
      pen_gather_shards_to(vm, &vm->unsharded[i], buffer + vm->unsharded[i].offset);
    }
  }
  return end_gather(vm);
}

bool pen_reshard(struct pen_vm *vm, const struct pen_action *action) {
  return (void)vm, (void)action, true; /* the buffer is free again: nothing to do */
}
