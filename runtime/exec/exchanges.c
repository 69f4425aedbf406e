/* exchanges.c: runs the exchanges between tensor ranks (see exchanges.h).
 *
 * What a member puts are copies on the device, between the transport's waits and signals; all are
 * enqueued on the rank's stream, or complete when they return. Where a transport does not reach the
 * memory of others, both sides send and receive the same blocks, all of an exchange together.
 *
 * An op cannot fail: a rank that leaves a wait because the run was aborted sets vm->aborted, and
 * its action ends the step. */
#include "runtime/exec/exchanges.h"

#include <stdlib.h>

#include "runtime/base/check.h"

/* What a member puts into the slot that it has at another: `count` blocks of `bytes`. Strides are
 * from one to the next: in its own value, and there. */
struct put {
  size_t count, bytes, from_stride, to_stride;
  size_t from_member; /* the first block for member m begins at m times this */
  size_t to_member;   /* the first block of member m comes at m times this after `to` */
  size_t to;          /* in each arena */
};

/* A bound exchange, or a part of one. */
struct exchange_op {
  struct pen_vm *vm;
  bool first;          /* of the exchange: this op puts, and waits for what the others put */
  uint32_t own_member; /* this member */
  struct put put;
};

bool pen_is_exchange(uint16_t kind) {
  return kind == PEN_OP_ALL_GATHER_PART || kind == PEN_OP_ALL_TO_ALL_PART ||
         kind == PEN_OP_ALL_GATHER_RUNS || kind == PEN_OP_SIGNAL_MEMBERS;
}

/* ---- the ops ---- */

static void wait_for_all(const struct exchange_op *op) {
  struct pen_vm *vm = op->vm;
  vm->aborted = !vm->transport->ops->wait_group(vm->transport, PEN_TENSOR, PEN_NONE) || vm->aborted;
}

/* Puts this rank's blocks for a member into its slot in that member's arena. */
static void put_blocks(const struct exchange_op *op, unsigned char *arena, uint32_t member,
                       const unsigned char *x, void *stream) {
  const struct put *put = &op->put;
  unsigned char *to = arena + put->to + op->own_member * put->to_member;
  const unsigned char *from = x + member * put->from_member;
  for (size_t b = 0; b < put->count; b++) {
    op->vm->device->copy(to + b * put->to_stride, from + b * put->from_stride, put->bytes, stream);
  }
}

/* To the members whose memory is reached. They have signalled the exchange before, so are done with
 * what these slots held. */
static void put_at_all(const struct exchange_op *op, const unsigned char *x, void *stream) {
  struct pen_vm *vm = op->vm;
  wait_for_all(op);
  for (uint32_t m = 0; m < pen_group_size(vm->plan, PEN_TENSOR); m++) {
    if (m != op->own_member) {
      put_blocks(op, vm->transport->ops->member_arena(vm->transport, PEN_TENSOR, m), m, x, stream);
    }
  }
}

/* To the others, and from them into the slots that they have here, all together. All have x at the
 * same offset. */
static void send_to_all(const struct exchange_op *op, const unsigned char *x) {
  struct pen_transport *transport = op->vm->transport;
  const struct put *put = &op->put;
  const uint64_t from = (uint64_t)(x - op->vm->arena);
  transport->ops->group_begin(transport);
  for (uint32_t m = 0; m < pen_group_size(op->vm->plan, PEN_TENSOR); m++) {
    for (size_t b = 0; b < put->count && m != op->own_member; b++) {
      const uint64_t block = from + b * put->from_stride, slot = put->to + b * put->to_stride;
      transport->ops->sendrecv(
          transport,
          &(struct pen_sendrecv){.group = PEN_TENSOR,
                                 .member = m,
                                 .receive_offset = block + op->own_member * put->from_member,
                                 .receive_bytes = put->bytes,
                                 .to = op->vm->arena + slot + m * put->to_member,
                                 .send_offset = block + m * put->from_member,
                                 .send_bytes = put->bytes,
                                 .target_offset = slot + op->own_member * put->to_member});
    }
  }
  transport->ops->group_end(transport);
}

static void begin(const struct exchange_op *op, const unsigned char *x, void *stream) {
  struct pen_transport *transport = op->vm->transport;
  const uint32_t other = op->own_member == 0 ? 1 : 0;
  put_blocks(op, op->vm->arena, op->own_member, x, stream);
  if (transport->ops->member_arena(transport, PEN_TENSOR, other) != NULL) {
    put_at_all(op, x, stream);
  } else {
    send_to_all(op, x);
  }
  transport->ops->signal_group(transport, PEN_TENSOR);
}

static void exchange(const struct pen_call *call) {
  const struct exchange_op *op = call->prepared;
  if (op->vm->unconnected) {
    return;
  }
  if (op->first) {
    begin(op, call->operand[0], call->stream);
    wait_for_all(op);
  }
}

static void signal_members(const struct pen_call *call) {
  const struct exchange_op *op = call->prepared;
  if (op->vm->unconnected) {
    return;
  }
  wait_for_all(op);
  op->vm->transport->ops->signal_group(op->vm->transport, PEN_TENSOR);
}

/* ---- binding ---- */

/* The slots of an exchange are bound to the same addresses in every action (base EXCHANGE). */
static size_t slot_of(const struct pen_vm *vm, const struct pen_op *op) {
  const struct pen_tensor *tensor = &vm->program->tensors[op->operand[1]];
  pen_assert(tensor->base == PEN_BASE_EXCHANGE);
  return vm->memory->exchange_offset + tensor->offset;
}

/* The ops of an exchange have the slots of member 0, 1, ... */
static void bind_slots(struct pen_vm *vm, const struct pen_op *op, uint32_t member,
                       struct exchange_op *made) {
  made->first = member == 0;
  if (made->first) {
    made->put.to = slot_of(vm, op);
    made->put.to_member = slot_of(vm, op + 1) - made->put.to;
  }
}

/* The whole of x, into a slot of its own. */
static void bind_part(struct pen_vm *vm, const struct pen_op *op, const int64_t *dim,
                      struct exchange_op *made) {
  made->put = (struct put){.count = 1, .bytes = (size_t)dim[0] * pen_dtype_bytes(op->dtype)};
  bind_slots(vm, op, (uint32_t)op->dim[1], made);
}

/* Of each sequence the run of the member that gets it, into a slot of its own. */
static void bind_runs_to_all(struct pen_vm *vm, const struct pen_op *op, const int64_t *dim,
                             struct exchange_op *made) {
  const size_t bytes = (size_t)dim[1] * pen_dtype_bytes(op->dtype);
  made->put = (struct put){.count = (size_t)dim[0],
                           .bytes = bytes,
                           .from_stride = (size_t)dim[2] * bytes,
                           .to_stride = bytes,
                           .from_member = bytes};
  bind_slots(vm, op, (uint32_t)op->dim[3], made);
}

/* The run of each sequence to its place between those of the others. */
static void bind_gather(struct pen_vm *vm, const struct pen_op *op, const int64_t *dim,
                        struct exchange_op *made) {
  const size_t bytes = (size_t)dim[1] * pen_dtype_bytes(op->dtype);
  made->put = (struct put){.count = (size_t)dim[0],
                           .bytes = bytes,
                           .from_stride = bytes,
                           .to_stride = (size_t)dim[2] * bytes,
                           .to_member = bytes,
                           .to = slot_of(vm, op)};
  made->first = true;
}

void pen_bind_exchange(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound) {
  const struct pen_op *op = &vm->program->ops[index];
  struct exchange_op *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for an operation");
  *made = (struct exchange_op){.vm = vm, .own_member = vm->endpoint->tensor_rank};
  if (op->kind == PEN_OP_ALL_GATHER_PART) {
    bind_part(vm, op, bound->call.dim, made);
  } else if (op->kind == PEN_OP_ALL_TO_ALL_PART) {
    bind_runs_to_all(vm, op, bound->call.dim, made);
  } else if (op->kind == PEN_OP_ALL_GATHER_RUNS) {
    bind_gather(vm, op, bound->call.dim, made);
  }
  bound->run = op->kind == PEN_OP_SIGNAL_MEMBERS ? signal_members : exchange;
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
    if (pen_is_exchange(vm->program->ops[i].kind)) {
      const struct exchange_op *op = vm->ops[i].call.prepared;
      bytes += op->first
                   ? op->put.count * op->put.bytes * (pen_group_size(vm->plan, PEN_TENSOR) - 1)
                   : 0;
    }
  }
  return bytes;
}
