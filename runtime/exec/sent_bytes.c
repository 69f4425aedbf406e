/* sent_bytes.c: how many bytes a rank sends in a step (see sent_bytes.h). */
#include "runtime/exec/exchanges.h"
#include "runtime/exec/sent_bytes.h"

#include "runtime/exec/program_collectives.h"
#include "runtime/plan/shard.h"

/* The elements of a weight that the peers own. */
static uint64_t peers_count(const struct pen_vm *vm, uint32_t weight) {
  return vm->plan->weights[weight].count - pen_shard_of(vm->plan, weight, vm->replica).count;
}

/* The bytes of an element that ALL_GATHER_WEIGHT gathers: of the value, and of its bf16 copy. */
static uint64_t gathered_bytes(const struct pen_weight *weight) {
  const bool copied = weight->bf16_offset != UINT64_MAX && !weight->bf16_sharded;
  return (weight->value_sharded ? 0 : sizeof(float)) + (copied ? sizeof(uint16_t) : 0);
}

/* The elements of a shard that this data rank sums over the groups. */
static uint64_t own_piece(const struct pen_vm *vm, uint64_t shard) {
  return pen_shard_at(shard, pen_group_size(vm->plan, PEN_SAME_SHARD),
                      pen_vm_member(vm, PEN_SAME_SHARD))
      .count;
}

/* What a collective sends of one of its stage's weights that are trained. */
static uint64_t collective_bytes(const struct pen_vm *vm, int kind, uint32_t weight) {
  const uint64_t own = pen_shard_of(vm->plan, weight, vm->replica).count,
                 peers = pen_group_size(vm->plan, PEN_SHARD) - 1,
                 groups = pen_group_size(vm->plan, PEN_SAME_SHARD);
  switch (kind) {
    case PEN_REDUCE_SCATTER: return peers_count(vm, weight) * sizeof(float);
    case PEN_REDUCE_GROUPS: return (own - own_piece(vm, own)) * sizeof(float);
    case PEN_GATHER_GROUPS: return (groups - 1) * own_piece(vm, own) * sizeof(float);
    case PEN_ALL_GATHER_GRAD: return peers * own * sizeof(float);
    case PEN_ALL_GATHER_WEIGHT: return peers * own * gathered_bytes(&vm->plan->weights[weight]);
    default: return 0;
  }
}

static uint64_t unshard_bytes(const struct pen_vm *vm, uint32_t stage) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < vm->unsharded_count; i++) {
    const struct pen_unsharded *tensor = &vm->unsharded[i];
    if (tensor->stage == stage) {
      bytes += pen_shard_of(vm->plan, tensor->weight, vm->replica).count * tensor->element_bytes;
    }
  }
  return bytes * (pen_group_size(vm->plan, PEN_SHARD) - 1);
}

static uint64_t action_bytes(const struct pen_vm *vm, const struct pen_action *action) {
  uint64_t bytes = 0;
  if (pen_kind_sends(action->kind)) {
    return vm->profile->messages[action->message].bytes;
  }
  if (action->kind <= PEN_W) {
    const struct pen_program *program = &vm->program->programs[action->program];
    return pen_program_sent_bytes(vm, program) + pen_exchanges_sent_bytes(vm, program);
  }
  if (pen_group_size(vm->plan, PEN_DATA) == 1 || !pen_kind_reads_peers(action->kind)) {
    return 0;
  }
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (vm->plan->weights[vm->weights[i]].stage == action->stage) {
      bytes += collective_bytes(vm, action->kind, vm->weights[i]);
    }
  }
  return bytes + (action->kind == PEN_UNSHARD ? unshard_bytes(vm, action->stage) : 0);
}

uint64_t pen_sent_bytes(const struct pen_vm *vm) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < vm->program->action_count; i++) {
    bytes += action_bytes(vm, &vm->program->actions[i]);
  }
  return bytes;
}
