/* collectives.c: runs the collectives of the plan (see collectives.h).
 *
 * A collective of an action runs on the compute stream: the generator has put it where its rank has
 * nothing else to do (gen/timing/collectives.c). Those of data ranks in programs run on a stream of
 * their own, a sequence at a time, and WAIT_EVENT makes the program's stream wait for the end of a
 * sequence. On the CPU all is complete when it returns. An op cannot fail: a rank that leaves a
 * wait because the run was aborted sets vm->aborted, and its action ends the step. */
#include "runtime/exec/collectives.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/plan/puts.h"

/* A bound op. */
struct runtime_op {
  struct pen_vm *vm;
  const struct pen_collective *collective; /* null: it has none, or the op before it runs it */
  void *event;                             /* WAIT_EVENT: waited for; null on the CPU */
};

bool pen_is_runtime_op(uint16_t kind) {
  static const bool is_runtime[PEN_OP_COUNT] = {
#define PEN_RUNTIME_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = true,
#include "kernels/ops.def"
  };
  return is_runtime[kind];
}

/* ---- puts ---- */

/* A put while it runs. */
struct running_put {
  struct pen_vm *vm;
  const struct pen_put *row;
  uint32_t self;
};

static struct pen_move move_of(const struct running_put *put, uint32_t from, uint32_t to) {
  const struct pen_vm *vm = put->vm;
  return pen_move_of(vm->plan, put->row, vm->frame, vm->endpoint->global, from, to);
}

static unsigned char *arena_of(const struct running_put *put, uint32_t member) {
  struct pen_transport *transport = put->vm->transport;
  return member == put->self ? put->vm->arena
                             : transport->ops->member_arena(transport, put->row->group, member);
}

/* Writes this member's blocks to another, or to itself. */
static void write_blocks(const struct running_put *put, unsigned char *arena,
                         const struct pen_move *move) {
  const struct pen_vm *vm = put->vm;
  for (uint64_t b = 0; b < move->count && move->bytes > 0; b++) {
    vm->device->copy(arena + move->to + b * move->to_stride,
                     vm->arena + move->from + b * move->from_stride, move->bytes,
                     vm->transport->collective_stream);
  }
}

static void exchange_blocks(const struct running_put *put, uint32_t member,
                            const struct pen_move *out, const struct pen_move *in) {
  struct pen_transport *transport = put->vm->transport;
  for (uint64_t b = 0; b < out->count; b++) {
    transport->ops->sendrecv(
        transport, &(struct pen_sendrecv){.group = put->row->group,
                                          .member = member,
                                          .receive_offset = in->from + b * in->from_stride,
                                          .receive_bytes = in->bytes,
                                          .to = transport->arena + in->to + b * in->to_stride,
                                          .send_offset = out->from + b * out->from_stride,
                                          .send_bytes = out->bytes,
                                          .target_offset = out->to + b * out->to_stride});
  }
}

/* Moves between this member and another. A summand that is reached is read in place. */
static void move_between(const struct running_put *put, uint32_t member) {
  const struct pen_move out = move_of(put, put->self, member), in = move_of(put, member, put->self);
  unsigned char *arena = put->row->kind == PEN_PUT_READ ? NULL : arena_of(put, member);
  if (arena == NULL) {
    exchange_blocks(put, member, &out, &in);
  } else if (put->row->kind == PEN_PUT_WRITE) {
    write_blocks(put, arena, &out);
  }
}

static void start_put(const struct running_put *put) {
  const struct pen_move own = move_of(put, put->self, put->self);
  if (put->row->kind != PEN_PUT_ADD && own.from != own.to) {
    write_blocks(put, put->vm->arena, &own);
  }
  for (uint32_t member = 0; member < pen_group_size(put->vm->plan, put->row->group); member++) {
    if (member != put->self) {
      move_between(put, member);
    }
  }
}

/* Adds the summands of all members, which are there, in their order. */
static void add_summands(const struct running_put *put) {
  struct pen_vm *vm = put->vm;
  const struct pen_move own = move_of(put, put->self, put->self);
  float *sum = (float *)(void *)(vm->arena + own.to);
  uint32_t count = 0;
  if (own.from != own.to) {
    vm->sources[count++] = sum;
  }
  for (uint32_t member = 0; member < pen_group_size(vm->plan, put->row->group); member++) {
    const unsigned char *arena = arena_of(put, member);
    vm->sources[count++] =
        (const float *)(const void *)(arena == NULL ? vm->arena + move_of(put, member, put->self).to
                                                    : arena + own.from);
  }
  vm->device->sum_arrays(sum, vm->sources, count, own.bytes / sizeof(float),
                         vm->transport->collective_stream);
}

/* Puts [first, first + count), started together. */
static void run_puts(struct pen_vm *vm, uint32_t first, uint32_t count) {
  const struct pen_put *rows = vm->program->puts + first;
  vm->transport->ops->group_begin(vm->transport);
  for (uint32_t i = 0; i < count; i++) {
    start_put(&(struct running_put){vm, &rows[i], pen_vm_member(vm, rows[i].group)});
  }
  vm->transport->ops->group_end(vm->transport);
  for (uint32_t i = 0; i < count; i++) {
    if (rows[i].kind == PEN_PUT_ADD) {
      add_summands(&(struct running_put){vm, &rows[i], pen_vm_member(vm, rows[i].group)});
    }
  }
}

/* ---- collectives ---- */

/* Waits until the others have completed so many collectives of the step, or as many as this one. */
static bool wait_others(struct pen_vm *vm, const struct pen_collective *row, uint32_t count) {
  return vm->transport->ops->wait_group(vm->transport, row->group,
                                        row->group == PEN_TENSOR ? PEN_NONE : count);
}

/* All of a collective but its first wait. What others write has come when they have signalled. */
static bool run_rows(struct pen_vm *vm, const struct pen_collective *row) {
  const uint32_t each = row->together ? row->put_count : 1;
  for (uint32_t i = 0; i < row->put_count; i += each) {
    run_puts(vm, row->first_put + i, each);
  }
  if (row->completes) {
    vm->transport->ops->signal_group(vm->transport, row->group);
  }
  return row->put_count == 0 || vm->program->puts[row->first_put].kind != PEN_PUT_WRITE ||
         vm->transport->ops->wait_group(vm->transport, row->group, PEN_NONE);
}

static const struct pen_collective *row_of(const struct pen_vm *vm,
                                           const struct pen_action *action) {
  return &vm->program->collectives[action->collective];
}

bool pen_collective_begin(struct pen_vm *vm, const struct pen_action *action) {
  pen_wait_sends(vm, action);
  return pen_group_size(vm->plan, PEN_DATA) == 1 ||
         wait_others(vm, row_of(vm, action), action->awaited_collective);
}

void pen_collective_end(struct pen_vm *vm, const struct pen_action *action) {
  if (pen_group_size(vm->plan, PEN_DATA) > 1) {
    vm->transport->ops->signal_group(vm->transport, row_of(vm, action)->group);
  }
}

bool pen_run_collective(struct pen_vm *vm, const struct pen_action *action) {
  vm->frame = &vm->program->frames[action->frame];
  return pen_collective_begin(vm, action) && run_rows(vm, row_of(vm, action));
}

bool pen_run_exchange(struct pen_vm *vm, uint32_t index) {
  static const struct pen_frame persistent = {{0}};
  const struct pen_collective *row = &vm->program->collectives[index];
  vm->frame = &persistent;
  return vm->unconnected || (wait_others(vm, row, 0) && run_rows(vm, row));
}

/* ---- ops ---- */

static void zero(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  op->vm->device->zero(call->operand[0], (size_t)call->dim[0] * sizeof(float), call->stream);
}

static void wait_event(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  if (op->event != NULL && !op->vm->unconnected) {
    op->vm->device->stream_wait_event(call->stream, op->event);
  }
}

static void collective(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  const struct pen_collective *row = op->collective;
  struct pen_vm *vm = op->vm;
  void *stream = row != NULL && row->group == PEN_DATA ? vm->streams.exchange : call->stream;
  if (row == NULL || vm->unconnected) {
    return;
  }
  if (row->begins && vm->device->asynchronous) {
    vm->device->event_record(vm->streams.exchange_fork, call->stream);
    vm->device->stream_wait_event(stream, vm->streams.exchange_fork);
  }
  vm->transport->collective_stream = stream;
  const uint32_t awaited = row->awaited > 0 ? vm->collectives_before + row->awaited : 0;
  const bool waited = !row->waits || wait_others(vm, row, awaited);
  vm->aborted = !waited || vm->aborted;
  vm->aborted = !run_rows(vm, row) || vm->aborted;
  vm->transport->collective_stream = vm->transport->stream;
  if (row->event != PEN_NONE && vm->device->asynchronous) {
    vm->device->event_record(vm->events[row->event], stream);
  }
}

/* ---- binding ---- */

void pen_bind_runtime_op(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound) {
  const struct pen_op *op = &vm->program->ops[index];
  const struct pen_collective *row = pen_collective_of(vm->program, op);
  struct runtime_op *made = pen_allocate(1, sizeof *made, "an operation");
  *made = (struct runtime_op){.vm = vm};
  if (row != NULL && (index == 0 || pen_collective_of(vm->program, op - 1) != row)) {
    made->collective = row;
  }
  if (op->kind == PEN_OP_WAIT_EVENT) {
    made->event = vm->events[vm->program->collectives[op->collective].event];
  }
  bound->run = row != NULL ? collective : op->kind == PEN_OP_ZERO ? zero : wait_event;
  bound->call.prepared = made;
}

void pen_collectives_open(struct pen_vm *vm) {
  const uint32_t members = pen_group_size(vm->plan, PEN_DATA);
  vm->sources = pen_allocate(members + 1u, sizeof *vm->sources, "%u replicas", members);
  vm->events = pen_allocate(vm->program->event_count + 1u, sizeof *vm->events, "%u events",
                            vm->program->event_count);
  for (uint32_t i = 0; i < vm->program->event_count && vm->device->asynchronous; i++) {
    vm->events[i] = vm->device->event_create();
    pen_check(vm->events[i] != NULL, "device %s: an event: %s", vm->device->name,
              vm->device->error());
  }
}

/* ---- what is sent ---- */

static uint64_t row_bytes(const struct pen_vm *vm, const struct pen_collective *row) {
  uint64_t bytes = 0;
  for (uint32_t i = row->first_put; i < row->first_put + row->put_count; i++) {
    bytes += pen_put_sent_bytes(vm->plan, &vm->program->puts[i], vm->endpoint->global);
  }
  return bytes;
}

static uint64_t program_bytes(const struct pen_vm *vm, const struct pen_program *program) {
  uint64_t bytes = 0;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct runtime_op *op = pen_collective_of(vm->program, &vm->program->ops[i]) != NULL
                                      ? vm->ops[i].call.prepared
                                      : NULL;
    bytes += op != NULL && op->collective != NULL ? row_bytes(vm, op->collective) : 0;
  }
  return bytes;
}

uint64_t pen_sent_bytes(const struct pen_vm *vm) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < vm->program->action_count; i++) {
    const struct pen_action *action = &vm->program->actions[i];
    if (pen_kind_sends(action->kind)) {
      bytes += vm->profile->messages[action->message].bytes;
    } else if (action->kind <= PEN_W) {
      bytes += program_bytes(vm, &vm->program->programs[action->program]);
    } else if (pen_group_size(vm->plan, PEN_DATA) > 1 && pen_kind_is_collective(action->kind)) {
      bytes += row_bytes(vm, row_of(vm, action));
    }
  }
  for (uint32_t i = 0; i < vm->program->exchange_count; i++) {
    bytes += row_bytes(vm, &vm->program->collectives[vm->program->first_exchange + i]);
  }
  return bytes;
}
