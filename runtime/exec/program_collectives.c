/* program_collectives.c: runs the ops of PEN_RUNTIME_OP (see program_collectives.h).
 *
 * On an asynchronous device consecutive collectives are enqueued on a stream of their own, which
 * first waits for what precedes them; WAIT_EVENT makes the program's stream wait for the end of
 * such a sequence. On the CPU all is complete when it returns. Consecutive ALL_GATHER ops, or
 * REDUCE_SCATTER ops, are one group of the transport: the first of them begins it, the last ends it
 * and, for REDUCE_SCATTER, then adds what has come. An op cannot fail: a rank that leaves a wait
 * because the run was aborted sets vm->aborted, and its action ends the step. */
#include "runtime/exec/program_collectives.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/exec/exchanges.h"
#include "runtime/exec/replicas.h"
#include "runtime/exec/weight_arrays.h"
#include "runtime/plan/shard.h"

/* A bound collective. */
struct runtime_op {
  struct pen_vm *vm;
  uint32_t weight;      /* whose shards they are */
  bool first, last;     /* of its group */
  bool sharded;         /* REDUCE_SCATTER: `sum` is the rank's shard */
  uint64_t staging;     /* REDUCE_SCATTER: place in what a peer sends of the group */
  uint64_t stage_bytes; /* of one peer, for the whole group */
  uint32_t element_bytes;
  struct pen_bound_op *group; /* REDUCE_SCATTER: the group's first */
  bool forks;                 /* the first of a sequence, on an asynchronous device */
  void *event; /* recorded by the last of a sequence; WAIT_EVENT: waited for. Null on the CPU */
};

bool pen_is_runtime_op(uint16_t kind) {
  static const bool is_runtime[PEN_OP_COUNT] = {
#define PEN_RUNTIME_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = true,
#include "kernels/ops.def"
  };
  return is_runtime[kind];
}

static uint64_t arena_offset(const struct pen_vm *vm, const void *operand) {
  return (uint64_t)((const unsigned char *)operand - vm->arena);
}

/* ---- the ops ---- */

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

/* Before and after a collective's calls; false: there is nothing to call yet. */
static bool enter(const struct runtime_op *op, const struct pen_call *call) {
  const struct pen_vm *vm = op->vm;
  if (vm->unconnected) {
    return false;
  }
  if (op->forks) {
    vm->device->event_record(vm->streams.exchange_fork, call->stream);
    vm->device->stream_wait_event(vm->streams.exchange, vm->streams.exchange_fork);
  }
  vm->transport->collective_stream = vm->streams.exchange;
  return true;
}

static void leave(const struct runtime_op *op) {
  const struct pen_vm *vm = op->vm;
  vm->transport->collective_stream = vm->transport->stream;
  if (op->event != NULL) {
    vm->device->event_record(op->event, vm->streams.exchange);
  }
}

static void signal_peers(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  if (!enter(op, call)) {
    return;
  }
  op->vm->transport->ops->signal_group(op->vm->transport, PEN_DATA);
  leave(op);
}

static void wait_peers(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  struct pen_vm *vm = op->vm;
  const uint32_t count = vm->collectives_before + (uint32_t)call->dim[0];
  if (!enter(op, call)) {
    return;
  }
  vm->aborted = !vm->transport->ops->wait_group(vm->transport, PEN_DATA, count) || vm->aborted;
  leave(op);
}

static void all_gather(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  struct pen_vm *vm = op->vm;
  const struct pen_transport_ops *ops = vm->transport->ops;
  if (!enter(op, call)) {
    return;
  }
  if (op->first) {
    vm->aborted =
        !ops->wait_group(vm->transport, PEN_DATA, 0) || vm->aborted; /* their last UPDATE */
    ops->group_begin(vm->transport);
  }
  pen_gather_shards_to(vm,
                       &(struct pen_unsharded){.weight = op->weight,
                                               .element_bytes = op->element_bytes,
                                               .shard_offset = arena_offset(vm, call->operand[0])},
                       call->operand[1]);
  if (op->last) {
    ops->group_end(vm->transport);
  }
  leave(op);
}

/* Where the shards of another member come, where its memory cannot be read. */
static unsigned char *staging_of(const struct pen_vm *vm, const struct runtime_op *op,
                                 uint32_t receiver, uint32_t sender) {
  const uint32_t place = sender - (sender > receiver);
  return vm->arena + vm->memory->shard_staging_offset + place * op->stage_bytes + op->staging;
}

static void receive_shard(struct pen_vm *vm, const struct runtime_op *op, uint64_t partial,
                          uint32_t from) {
  const uint32_t self = pen_vm_member(vm, PEN_SHARD);
  const struct pen_shard own = pen_shard_of(vm->plan, op->weight, self),
                         other = pen_shard_of(vm->plan, op->weight, from);
  const struct pen_sendrecv sendrecv = {
      .group = PEN_SHARD,
      .member = from,
      .receive_offset = partial + own.first * sizeof(float),
      .receive_bytes = own.count * sizeof(float),
      .to = staging_of(vm, op, self, from),
      .send_offset = partial + other.first * sizeof(float),
      .send_bytes = other.count * sizeof(float),
      .target_offset = arena_offset(vm, staging_of(vm, op, from, self))};
  vm->transport->ops->sendrecv(vm->transport, &sendrecv);
}

/* Adds the rank's shard of each member's gradient to the accumulator. */
static void add_shards(struct pen_vm *vm, const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  const struct pen_shard own = pen_shard_of(vm->plan, op->weight, vm->replica);
  const uint64_t partial = arena_offset(vm, call->operand[0]) + own.first * sizeof(float);
  float *sum = (float *)call->operand[1] + (op->sharded ? 0 : own.first);
  uint32_t count = 0, self = pen_vm_member(vm, PEN_SHARD);
  vm->sources[count++] = sum;
  for (uint32_t m = 0; m < pen_group_size(vm->plan, PEN_SHARD); m++) {
    const unsigned char *arena = pen_member_arena(vm, PEN_SHARD, m),
                        *staging = staging_of(vm, op, self, m);
    vm->sources[count++] = (const float *)(const void *)(arena ? arena + partial : staging);
  }
  vm->device->sum_arrays(sum, vm->sources, count, own.count, vm->transport->collective_stream);
}

static void reduce_scatter(const struct pen_call *call) {
  const struct runtime_op *op = call->prepared;
  struct pen_vm *vm = op->vm;
  const struct pen_transport_ops *ops = vm->transport->ops;
  if (!enter(op, call)) {
    return;
  }
  if (op->first) {
    ops->group_begin(vm->transport);
  }
  for (uint32_t m = 0; m < pen_group_size(vm->plan, PEN_SHARD); m++) {
    if (pen_member_arena(vm, PEN_SHARD, m) == NULL) {
      receive_shard(vm, op, arena_offset(vm, call->operand[0]), m);
    }
  }
  if (op->last) {
    ops->group_end(vm->transport);
    for (const struct pen_bound_op *bound = op->group; &bound->call <= call; bound++) {
      add_shards(vm, &bound->call);
    }
  }
  leave(op);
}

/* ---- binding ---- */

/* The weight whose gradient, or shard, is at an offset of the rank's arena. */
static uint32_t weight_of(const struct pen_vm *vm, uint64_t offset) {
  const uint32_t weight = pen_weight_at(vm, offset, true);
  if (weight == PEN_NONE) {
    pen_fail(PEN_EXIT_INTERNAL, "the plan has no weight at %" PRIu64 " of rank %" PRIu32, offset,
             vm->rank);
  }
  return weight;
}

/* The program that an op belongs to. */
static const struct pen_program *program_of(const struct pen_vm *vm, uint32_t index) {
  const struct pen_program *program = vm->program->programs;
  while (index < program->first_op || index >= program->first_op + program->op_count) {
    program++;
    pen_assert(program < vm->program->programs + vm->program->program_count);
  }
  return program;
}

static const struct pen_op *op_at(const struct pen_vm *vm, uint32_t index) {
  return &vm->program->ops[index];
}

/* Sets the place of an op within its group of ops [first, past). */
static void bind_group(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound,
                       struct runtime_op *made) {
  const struct pen_program *program = program_of(vm, index);
  const uint16_t kind = op_at(vm, index)->kind;
  uint32_t first = index, past = index;
  while (first > program->first_op && op_at(vm, first - 1)->kind == kind) {
    first--;
  }
  while (past < program->first_op + program->op_count && op_at(vm, past)->kind == kind) {
    past++;
  }
  made->first = first == index;
  made->last = past == index + 1;
  made->group = bound - (index - first);
  for (uint32_t i = first; i < past; i++) {
    const uint64_t bytes =
        pen_shard_bytes((uint64_t)op_at(vm, i)->dim[0], pen_group_size(vm->plan, PEN_SHARD));
    made->staging += i < index ? bytes : 0;
    made->stage_bytes += bytes;
  }
}

/* Whether an op is a collective of that program, or in no program. */
static bool is_collective(const struct pen_vm *vm, const struct pen_program *program,
                          uint32_t index) {
  if (index < program->first_op || index >= program->first_op + program->op_count) {
    return false;
  }
  const uint16_t kind = op_at(vm, index)->kind;
  return pen_is_runtime_op(kind) && !pen_is_exchange(kind) && kind != PEN_OP_ZERO &&
         kind != PEN_OP_WAIT_EVENT;
}

/* Whether a collective names a tensor. */
static bool names(const struct pen_op *op, uint32_t tensor) {
  return (op->kind == PEN_OP_ALL_GATHER && op->operand[1] == tensor) ||
         (op->kind == PEN_OP_REDUCE_SCATTER && op->operand[0] == tensor);
}

/* The event of the sequence that holds the last collective before WAIT_EVENT of its tensor. */
static void *event_before(const struct pen_vm *vm, uint32_t index) {
  const struct pen_program *program = program_of(vm, index);
  uint32_t at = index;
  while (at > program->first_op && !names(op_at(vm, at), op_at(vm, index)->operand[0])) {
    at--;
  }
  while (is_collective(vm, program, at + 1)) {
    at++;
  }
  const struct runtime_op *last = vm->ops[at].call.prepared;
  pen_assert(is_collective(vm, program, at) && last->event != NULL);
  return last->event;
}

/* On an asynchronous device: where a sequence of collectives begins and ends. */
static void bind_sequence(struct pen_vm *vm, uint32_t index, struct runtime_op *made) {
  const struct pen_program *program = program_of(vm, index);
  if (op_at(vm, index)->kind == PEN_OP_WAIT_EVENT) {
    made->event = event_before(vm, index);
  } else if (is_collective(vm, program, index)) {
    made->forks = index == 0 || !is_collective(vm, program, index - 1);
    if (!is_collective(vm, program, index + 1)) {
      made->event = vm->device->event_create();
      pen_check(made->event != NULL, "device %s: an event: %s", vm->device->name,
                vm->device->error());
    }
  }
}

void pen_bind_runtime_op(struct pen_vm *vm, uint32_t index, struct pen_bound_op *bound) {
  static pen_kernel *const runs[PEN_OP_COUNT] = {
      [PEN_OP_ZERO] = zero,
      [PEN_OP_SIGNAL_PEERS] = signal_peers,
      [PEN_OP_WAIT_PEERS] = wait_peers,
      [PEN_OP_WAIT_EVENT] = wait_event,
      [PEN_OP_ALL_GATHER] = all_gather,
      [PEN_OP_REDUCE_SCATTER] = reduce_scatter,
  };
  const struct pen_op *op = op_at(vm, index);
  struct runtime_op *made = calloc(1, sizeof *made);
  pen_check(made != NULL, "no memory for an operation");
  *made = (struct runtime_op){.vm = vm, .element_bytes = pen_dtype_bytes(op->dtype)};
  if (op->kind == PEN_OP_ALL_GATHER || op->kind == PEN_OP_REDUCE_SCATTER) {
    const struct pen_tensor *kept =
        &vm->program->tensors[op->operand[op->kind == PEN_OP_ALL_GATHER ? 0 : 1]];
    made->weight = weight_of(vm, kept->offset);
    made->sharded = vm->plan->weights[made->weight].gradient_sharded;
    bind_group(vm, index, bound, made);
  }
  if (vm->device->asynchronous) {
    bind_sequence(vm, index, made);
  }
  pen_assert(runs[op->kind] != NULL);
  bound->run = runs[op->kind];
  bound->call.prepared = made;
}

uint64_t pen_program_sent_bytes(const struct pen_vm *vm, const struct pen_program *program) {
  const uint64_t peers = pen_group_size(vm->plan, PEN_SHARD) - 1;
  uint64_t bytes = 0;
  for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
    const struct runtime_op *made = vm->ops[i].call.prepared;
    const uint16_t kind = op_at(vm, i)->kind;
    if (kind == PEN_OP_ALL_GATHER) {
      bytes +=
          peers * pen_shard_of(vm->plan, made->weight, vm->replica).count * made->element_bytes;
    } else if (kind == PEN_OP_REDUCE_SCATTER) {
      bytes += (vm->plan->weights[made->weight].count -
                pen_shard_of(vm->plan, made->weight, vm->replica).count) *
               sizeof(float);
    }
  }
  return bytes;
}
