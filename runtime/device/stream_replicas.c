/* queue_replicas.c: the rows of the exchange between replicas, in calls that a device keeps in
 * order: what replicas.c does, in the same order of sums. All of it comes on the queue's stream:
 * the generator has put the rows where their rank has nothing else to do
 * (gen/timing/gradient_exchange.c). */
#include "runtime/device/stream_executor.h"

#include "runtime/device/link.h"
#include "runtime/exec/replicas.h"
#include "runtime/plan/shard.h"

void pen_stream_collective_begin(struct pen_vm *vm, const struct pen_action *action) {
  if (vm->plan->replica_count > 1) {
    vm->queued.link->kind->peers_reached(vm->queued.link, action->awaited_collective);
  }
}

void pen_stream_collective_end(struct pen_vm *vm) {
  if (vm->plan->replica_count > 1) {
    vm->queued.link->kind->exchanged(vm->queued.link);
  }
}

static void swap(struct pen_vm *vm, const struct pen_sendrecv *swap) {
  vm->queued.link->kind->swap(vm->queued.link, swap);
}

static void swaps_begin(struct pen_vm *vm, const struct pen_action *action) {
  pen_stream_await_sends(vm, action);
  pen_stream_collective_begin(vm, action);
  vm->queued.link->kind->swap_begin(vm->queued.link);
}

static bool swaps_end(struct pen_vm *vm) {
  vm->queued.link->kind->swap_end(vm->queued.link);
  pen_stream_collective_end(vm);
  return true;
}

/* A row that swaps something for each of its stage's own weights that learn, once its peers are
 * there. */
static bool exchange(struct pen_vm *vm, const struct pen_action *action,
                     void (*function)(struct pen_vm *vm, uint32_t weight)) {
  swaps_begin(vm, action);
  pen_each_own_weight(vm, action, function);
  return swaps_end(vm);
}

bool pen_queue_grad_ready(struct pen_vm *vm, const struct pen_action *action) {
  pen_stream_collective_begin(vm, action);
  pen_stream_collective_end(vm);
  return true;
}

/* Peers' shards of this gradient come to the staging, which each weight uses anew: a peer's is
 * where it has its place among them. */
static const float *bring_shards(struct pen_vm *vm, uint32_t index, uint32_t replica) {
  const struct pen_shard own = pen_shard_of(vm->plan, index, vm->replica),
                         other = pen_shard_of(vm->plan, index, replica);
  const uint64_t gradient = vm->plan->weights[index].gradient_offset;
  const uint64_t room = pen_aligned(
      pen_shard_most(vm->plan->weights[index].count, vm->plan->replica_count) * sizeof(float));
  unsigned char *to = vm->arena + vm->queue->memory->shard_staging_offset +
                      (replica - (replica > vm->replica)) * room;
  swap(vm, &(struct pen_sendrecv){.replica = replica,
                                  .theirs = gradient + own.first * sizeof(float),
                                  .their_bytes = own.count * sizeof(float),
                                  .to = to,
                                  .ours = gradient + other.first * sizeof(float),
                                  .our_bytes = other.count * sizeof(float)});
  return (const float *)to;
}

static void sum_own_shard(struct pen_vm *vm, uint32_t index) {
  const struct pen_link_kind *kind = vm->queued.link->kind;
  const struct pen_shard shard = pen_shard_of(vm->plan, index, vm->replica);
  const uint64_t at = vm->plan->weights[index].gradient_offset + shard.first * sizeof(float);
  kind->swap_begin(vm->queued.link);
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const unsigned char *arena =
        replica == vm->replica ? vm->arena : kind->peer_arena(vm->queued.link, replica);
    vm->sources[replica] =
        arena == NULL ? bring_shards(vm, index, replica) : (const float *)(arena + at);
  }
  kind->swap_end(vm->queued.link);
  vm->device->sum_arrays((float *)(vm->arena + at), vm->sources, vm->plan->replica_count,
                         shard.count, vm->queue->stream);
}

/* Copies the peers' shards of a tensor that all keep whole at `offset`. */
static void copy_shards(struct pen_vm *vm, uint32_t index, uint64_t offset, size_t element_bytes) {
  const struct pen_shard own = pen_shard_of(vm->plan, index, vm->replica);
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, index, replica);
    const uint64_t at = offset + shard.first * element_bytes;
    if (replica != vm->replica) {
      swap(vm, &(struct pen_sendrecv){.replica = replica,
                                      .theirs = at,
                                      .their_bytes = shard.count * element_bytes,
                                      .to = vm->arena + at,
                                      .ours = offset + own.first * element_bytes,
                                      .our_bytes = own.count * element_bytes});
    }
  }
}

static void copy_gradient(struct pen_vm *vm, uint32_t index) {
  copy_shards(vm, index, vm->plan->weights[index].gradient_offset, sizeof(float));
}

static void copy_value(struct pen_vm *vm, uint32_t index) {
  pen_copy_value(vm, index, copy_shards);
}

bool pen_queue_reduce_scatter(struct pen_vm *vm, const struct pen_action *action) {
  pen_stream_await_sends(vm, action);
  pen_stream_collective_begin(vm, action);
  pen_each_own_weight(vm, action, sum_own_shard);
  pen_stream_collective_end(vm);
  return true;
}

bool pen_queue_all_gather_gradients(struct pen_vm *vm, const struct pen_action *action) {
  return exchange(vm, action, copy_gradient);
}
bool pen_queue_all_gather_weights(struct pen_vm *vm, const struct pen_action *action) {
  return exchange(vm, action, copy_value);
}

/* One tensor of the block, from the shards that lie where each replica keeps its own. */
static void bring_together(struct pen_vm *vm, const struct pen_unsharded *tensor,
                           unsigned char *to) {
  const struct pen_shard own = pen_shard_of(vm->plan, tensor->weight, vm->replica);
  const uint64_t own_bytes = own.count * tensor->element_bytes;
  if (own_bytes > 0) {
    vm->queue->device->copy(to + own.first * tensor->element_bytes,
                            vm->arena + tensor->shard_offset, own_bytes, vm->queue->stream);
  }
  for (uint32_t replica = 0; replica < vm->plan->replica_count; replica++) {
    const struct pen_shard shard = pen_shard_of(vm->plan, tensor->weight, replica);
    if (replica != vm->replica) {
      swap(vm, &(struct pen_sendrecv){.replica = replica,
                                      .theirs = tensor->shard_offset,
                                      .their_bytes = shard.count * tensor->element_bytes,
                                      .to = to + shard.first * tensor->element_bytes,
                                      .ours = tensor->shard_offset,
                                      .our_bytes = own_bytes});
    }
  }
}

bool pen_stream_unshard(struct pen_vm *vm, const struct pen_action *action) {
  swaps_begin(vm, action);
  pen_each_unsharded(vm, action, bring_together);
  return swaps_end(vm);
}
