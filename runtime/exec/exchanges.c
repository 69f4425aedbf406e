/* exchanges.c: runs the exchanges between tensor ranks (see exchanges.h), on the CPU, where a call
 * is complete when it returns.
 *
 * An op cannot fail: a rank that leaves a wait because the run was aborted sets vm->aborted, and
 * its action ends the step. */
#include "runtime/exec/exchanges.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"

/* A bound exchange, or a part of one. */
struct exchange_op {
  struct pen_vm *vm;
  bool first;          /* of the exchange */
  const void *own;     /* the slot of this member's part */
  uint32_t own_member; /* this member */
  size_t bytes;
};

bool pen_is_exchange(uint16_t kind) {
  return kind == PEN_OP_ALL_GATHER_PART || kind == PEN_OP_SIGNAL_MEMBERS;
}

/* ---- the ops ---- */

static void wait_for(struct pen_vm *vm, uint32_t member) {
  vm->aborted = !vm->transport->ops->wait_member(vm->transport, member) || vm->aborted;
}

/* Puts the own part into the slots that this member has at all others; they have signalled the
 * exchange before, so are done with what these slots held. */
static void put(const struct exchange_op *op, const void *part) {
  struct pen_vm *vm = op->vm;
  const size_t offset = (size_t)((const unsigned char *)op->own - vm->arena);
  for (uint32_t member = 0; member < vm->plan->tensor_ranks; member++) {
    if (member != op->own_member) {
      wait_for(vm, member);
    }
    unsigned char *arena = member == op->own_member
                               ? vm->arena
                               : vm->transport->ops->member_arena(vm->transport, member);
    memcpy(arena + offset, part, op->bytes);
  }
  vm->transport->ops->signal_members(vm->transport);
}

static void all_gather_part(const struct pen_call *call) {
  const struct exchange_op *op = call->prepared;
  const uint32_t member = (uint32_t)call->dim[1];
  if (op->vm->unconnected) {
    return;
  }
  if (op->first) {
    put(op, call->operand[0]);
  }
  if (member != op->own_member) {
    wait_for(op->vm, member);
  }
}

static void signal_members(const struct pen_call *call) {
  const struct exchange_op *op = call->prepared;
  if (op->vm->unconnected) {
    return;
  }
  for (uint32_t member = 0; member < op->vm->plan->tensor_ranks; member++) {
    if (member != op->own_member) {
      wait_for(op->vm, member);
    }
  }
  op->vm->transport->ops->signal_members(op->vm->transport);
}

/* ---- binding ---- */

/* The slots of an exchange are bound to the same addresses in every action (base EXCHANGE). */
static const void *slot_of(const struct pen_vm *vm, const struct pen_op *op) {
  const struct pen_tensor *tensor = &vm->program->tensors[op->operand[1]];
  pen_assert(op->kind == PEN_OP_ALL_GATHER_PART && tensor->base == PEN_BASE_EXCHANGE);
  return vm->arena + vm->memory->exchange_offset + tensor->offset;
}

void pen_bind_exchange(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound) {
  const struct pen_op *op = &vm->program->ops[index];
  struct exchange_op *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for an operation");
  pen_check(!vm->device->asynchronous && vm->transport->ops->wait_member != NULL,
            "transport %s cannot exchange values between tensor ranks", vm->transport->ops->name);
  *made = (struct exchange_op){.vm = vm, .own_member = vm->endpoint->tensor_rank};
  if (op->kind == PEN_OP_ALL_GATHER_PART) {
    made->first = op->dim[1] == 0;
    made->own = made->first ? slot_of(vm, op + made->own_member) : NULL;
    made->bytes = (size_t)bound->call.dim[0] * pen_dtype_bytes(op->dtype);
  }
  bound->run = op->kind == PEN_OP_ALL_GATHER_PART ? all_gather_part : signal_members;
  bound->call.prepared = made;
}

void pen_set_member_dims(const struct pen_vm *vm, uint32_t index, int64_t dim[PEN_DIMS_MAX]) {
  const uint32_t profile = (uint32_t)(vm->profile - vm->plan->profiles);
  for (uint32_t i = 0; i < vm->plan->member_dim_count; i++) {
    const struct pen_member_dim *own = &vm->plan->member_dims[i];
    if (own->op == index && own->tensor_rank == vm->endpoint->tensor_rank &&
        own->rank == vm->rank && own->profile == profile) {
      dim[own->dim] = own->value;
    }
  }
}

uint64_t pen_exchanges_sent_bytes(const struct pen_vm *vm, const struct pen_program *program) {
  uint64_t bytes = 0;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    if (vm->program->ops[i].kind == PEN_OP_ALL_GATHER_PART) {
      const struct exchange_op *op = vm->ops[i].call.prepared;
      bytes += op->first ? op->bytes * (vm->plan->tensor_ranks - 1) : 0;
    }
  }
  return bytes;
}
