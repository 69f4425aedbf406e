/* replicas.c: the collectives between replicas (see replicas.h). All of them run on the compute
 * stream: the generator has put them where their rank has nothing else to do
 * (gen/timing/collectives.c). */
#include "runtime/exec/replicas.h"

#include "runtime/plan/shard.h"

bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action) {
  return pen_group_size(vm->plan, PEN_DATA) == 1 ||
         vm->transport->ops->wait_group(vm->transport, PEN_DATA, action->awaited_collective);
}

void pen_collective_end(struct pen_vm *vm) {
  if (pen_group_size(vm->plan, PEN_DATA) > 1) {
    vm->transport->ops->signal_group(vm->transport, PEN_DATA);
  }
}

bool pen_grad_ready(struct pen_vm *vm, const struct pen_action *action) {
  const bool going = pen_collective_begin(vm, action);
  pen_collective_end(vm);
  return going;
}

/* Calls a function for each of the action's stage's own weights whose gradients are summed. */
static void each_weight(struct pen_vm *vm, const struct pen_action *action,
                        void (*function)(struct pen_vm *vm, uint32_t weight)) {
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    const struct pen_weight *weight = &vm->plan->weights[vm->weights[i]];
    if (weight->stage == action->stage && pen_sums_gradient(weight, PEN_DATA)) {
      function(vm, vm->weights[i]);
    }
  }
}

static void sendrecv(struct pen_vm *vm, const struct pen_sendrecv *sendrecv) {
  vm->transport->ops->sendrecv(vm->transport, sendrecv);
}

/* A group is that of the data ranks which have all shards, each its own, or of those which have the
 * same shards, each a piece of them. */
const unsigned char *pen_member_arena(const struct pen_vm *vm, int group, uint32_t member) {
  return member == pen_vm_member(vm, group)
             ? vm->arena
             : vm->transport->ops->member_arena(vm->transport, group, member);
}

/* The elements of the stored gradient that a member sums. */
static struct pen_shard summed_by(const struct pen_vm *vm, int group, uint32_t index,
                                  uint32_t member) {
  if (group == PEN_SHARD) {
    return pen_shard_of(vm->plan, index, member);
  }
  const struct pen_shard shard = pen_shard_of(vm->plan, index, vm->replica);
  const struct pen_shard piece = pen_shard_at(shard.count, pen_group_size(vm->plan, group), member);
  const uint64_t first = vm->plan->weights[index].gradient_sharded ? 0 : shard.first;
  return (struct pen_shard){first + piece.first, piece.count};
}

/* ---- sums ---- */

/* A peer's gradient of what this rank sums, in the staging memory, which each weight uses again:
 * peers have their place there by their order. */
static const float *receive_summand(struct pen_vm *vm, int group, uint32_t index, uint32_t from) {
  const uint32_t to = pen_vm_member(vm, group);
  const struct pen_shard own = summed_by(vm, group, index, to),
                         other = summed_by(vm, group, index, from);
  const uint64_t gradient = vm->plan->weights[index].gradient_offset,
                 staging = vm->memory->shard_staging_offset,
                 stride = pen_shard_bytes(pen_shard_most_of(vm->plan, index),
                                          group == PEN_SHARD ? 1 : pen_group_size(vm->plan, group));
  unsigned char *at = vm->arena + staging + (from - (from > to)) * stride;
  sendrecv(vm, &(struct pen_sendrecv){.group = group,
                                      .member = from,
                                      .receive_offset = gradient + own.first * sizeof(float),
                                      .receive_bytes = own.count * sizeof(float),
                                      .to = at,
                                      .send_offset = gradient + other.first * sizeof(float),
                                      .send_bytes = other.count * sizeof(float),
                                      .target_offset = staging + (to - (to > from)) * stride});
  return (const float *)at;
}

static void sum_gradient(struct pen_vm *vm, int group, uint32_t index) {
  const struct pen_transport_ops *ops = vm->transport->ops;
  const struct pen_shard own = summed_by(vm, group, index, pen_vm_member(vm, group));
  const uint64_t at = vm->plan->weights[index].gradient_offset + own.first * sizeof(float);
  const uint32_t members = pen_group_size(vm->plan, group);
  ops->group_begin(vm->transport);
  for (uint32_t member = 0; member < members; member++) {
    const unsigned char *arena = pen_member_arena(vm, group, member);
    vm->sources[member] =
        arena == NULL ? receive_summand(vm, group, index, member) : (const float *)(arena + at);
  }
  ops->group_end(vm->transport);
  vm->device->sum_arrays((float *)(vm->arena + at), vm->sources, members, own.count,
                         vm->streams.compute);
}

static void sum_over_group(struct pen_vm *vm, uint32_t index) {
  sum_gradient(vm, PEN_SHARD, index);
}

static void sum_over_groups(struct pen_vm *vm, uint32_t index) {
  sum_gradient(vm, PEN_SAME_SHARD, index);
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

/* Gathers what the other members have of a tensor that all keep whole at `offset`. */
static void gather(struct pen_vm *vm, int group, uint32_t index, uint64_t offset,
                   size_t element_bytes) {
  const struct pen_shard own = summed_by(vm, group, index, pen_vm_member(vm, group));
  for (uint32_t member = 0; member < pen_group_size(vm->plan, group); member++) {
    const struct pen_shard other = summed_by(vm, group, index, member);
    const uint64_t at = offset + other.first * element_bytes;
    if (member != pen_vm_member(vm, group)) {
      sendrecv(vm, &(struct pen_sendrecv){.group = group,
                                          .member = member,
                                          .receive_offset = at,
                                          .receive_bytes = other.count * element_bytes,
                                          .to = vm->arena + at,
                                          .send_offset = offset + own.first * element_bytes,
                                          .send_bytes = own.count * element_bytes,
                                          .target_offset = offset + own.first * element_bytes});
    }
  }
}

/* The pieces of this replica's shard that other groups have summed. */
static void gather_pieces(struct pen_vm *vm, uint32_t index) {
  gather(vm, PEN_SAME_SHARD, index, vm->plan->weights[index].gradient_offset, sizeof(float));
}

static void gather_gradient(struct pen_vm *vm, uint32_t index) {
  gather(vm, PEN_SHARD, index, vm->plan->weights[index].gradient_offset, sizeof(float));
}

/* Of a weight's value, and of its copy in the model's dtype, what all keep whole. */
static void gather_value(struct pen_vm *vm, uint32_t index) {
  const struct pen_weight *weight = &vm->plan->weights[index];
  if (!weight->value_sharded) {
    gather(vm, PEN_SHARD, index, weight->value_offset, sizeof(float));
  }
  if (weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded) {
    gather(vm, PEN_SHARD, index, weight->bf16_offset, sizeof(uint16_t));
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
  for (uint32_t member = 0; member < pen_group_size(vm->plan, PEN_SHARD); member++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, tensor->weight, member);
    if (member != pen_vm_member(vm, PEN_SHARD)) {
      sendrecv(vm, &(struct pen_sendrecv){.group = PEN_SHARD,
                                          .member = member,
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
