/* bind.c: binds the ops of a rank's tables to kernels and addresses, before the seal, except for
 * the addresses' bases that depend on the action. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/collectives.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/operands.h"
#include "runtime/exec/matrices.h"
#include "runtime/exec/route_guard.h"
#include "runtime/exec/weight_arrays.h"

/* The state of binding one rank. */
struct binding {
  struct pen_vm *vm;
  bool fixed[PEN_BASES]; /* bases that are the same in every frame: their addresses are set once */
  uint32_t relocation_count;
};

static void find_fixed_bases(struct binding *binding) {
  const struct pen_rank_program *program = binding->vm->program;
  for (uint32_t b = 0; b < PEN_BASES; b++) {
    binding->fixed[b] = program->frame_count > 0;
    for (uint32_t f = 1; f < program->frame_count; f++) {
      binding->fixed[b] =
          binding->fixed[b] && program->frames[f].base[b] == program->frames[0].base[b];
    }
  }
  binding->fixed[PEN_BASE_PERSISTENT] = true; /* constants are computed before any action */
}

/* Sets an address in a call, or lists it as one that each action sets. */
static void bind_address(struct binding *binding, void **where, uint32_t index) {
  struct pen_vm *vm = binding->vm;
  const struct pen_rank_program *program = vm->program;
  if (index == PEN_NONE) {
    return; /* the operand is absent: null */
  }
  pen_assert(index < program->tensor_count && program->tensors[index].base < PEN_BASES);
  const struct pen_tensor *tensor = &program->tensors[index];
  if (!binding->fixed[tensor->base]) {
    vm->relocations[binding->relocation_count++] =
        (struct pen_relocation){.where = where, .offset = tensor->offset, .base = tensor->base};
    return;
  }
  uint64_t base = program->frame_count > 0 ? program->frames[0].base[tensor->base] : 0;
  *where = vm->arena + base + tensor->offset;
}

static const char *const name_of[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = #kind,
#include "kernels/ops.def"
};

/* Sets the dims of a bound op that are another for this tensor rank. */
static void set_tensor_rank_dims(const struct pen_vm *vm, uint32_t index,
                                 int64_t dim[PEN_DIMS_MAX]) {
  const uint32_t profile = (uint32_t)(vm->profile - vm->plan->profiles);
  for (uint32_t i = 0; i < vm->plan->tensor_rank_dim_count; i++) {
    const struct pen_tensor_rank_dim *own = &vm->plan->tensor_rank_dims[i];
    if (own->op == index && own->tensor_rank == vm->endpoint->tensor_rank &&
        own->rank == vm->rank && own->profile == profile) {
      dim[own->dim] = own->value;
    }
  }
}

/* The program of POINTWISE, or that of the gradient of an operand; of other ops none. */
static struct pen_steps steps_of(const struct pen_plan *plan, const struct pen_op *op) {
  enum { PROGRAM = 2, OPERAND = 3 }; /* dims */
  if (op->kind != PEN_OP_POINTWISE && op->kind != PEN_OP_POINTWISE_DX) {
    return (struct pen_steps){0};
  }
  const struct pen_pointwise *row = &plan->pointwise[op->dim[PROGRAM]];
  if (op->kind == PEN_OP_POINTWISE_DX) {
    row = &plan->pointwise[row->gradient[op->dim[OPERAND]]];
  }
  return (struct pen_steps){
      row->step_count, row->register_count, row->kind, row->to, row->a, row->b,
      row->c,          row->number};
}

static void bind_op(struct binding *binding, uint32_t index) {
  struct pen_vm *vm = binding->vm;
  struct pen_bound_op *bound = &vm->ops[index];
  const struct pen_op *op = &vm->program->ops[index];
  uint32_t operand_count = pen_operands_of(op->kind).all;
  for (uint32_t i = 0; i < operand_count; i++) {
    bind_address(binding, &bound->call.operand[i], op->operand[i]);
  }
  bind_address(binding, &bound->call.workspace, op->workspace);
  memcpy(bound->call.dim, op->dim, sizeof op->dim);
  set_tensor_rank_dims(vm, index, bound->call.dim);
  memcpy(bound->call.real, op->real, sizeof op->real);
  bound->call.steps = steps_of(vm->plan, op);
  bound->call.stream = vm->streams.compute;
  if (pen_data_op(op->kind, op->dtype) != NULL) {
    vm->executor->bind_input(vm, op, bound);
    return;
  }
  if (pen_is_runtime_op(op->kind)) {
    pen_bind_runtime_op(vm, index, bound);
    return;
  }
  bound->run = vm->device->kernel_of(op->kind, op->dtype);
  pen_check(bound->run != NULL, "the device %s has no kernel for the operation %s",
            vm->device->name, name_of[op->kind]);
  bound->call.prepared = vm->device->prepare(op->kind, op->dtype, bound->call.dim, op->real);
  pen_guard_routes(vm, op, bound);
}

static void bind_ops(struct pen_vm *vm) {
  uint32_t op_count = vm->program->op_count;
  struct binding binding = {.vm = vm};
  find_fixed_bases(&binding);
  vm->ops = calloc(op_count + 1u, sizeof *vm->ops);
  vm->relocations = calloc((size_t)op_count * (PEN_OPERANDS_MAX + 1) + 1, sizeof *vm->relocations);
  vm->first_relocation = calloc(op_count + 1u, sizeof *vm->first_relocation);
  pen_check(vm->ops != NULL && vm->relocations != NULL && vm->first_relocation != NULL,
            "no memory for %u operations", op_count);
  for (uint32_t i = 0; i < op_count; i++) {
    vm->first_relocation[i] = binding.relocation_count;
    bind_op(&binding, i);
  }
  vm->first_relocation[op_count] = binding.relocation_count;
}

/* The rank's weights that are trained. */
static void list_weights(struct pen_vm *vm) {
  uint32_t *weights = pen_allocate(vm->plan->weight_count + 1, sizeof *weights, "%u weights",
                                   vm->plan->weight_count);
  for (uint32_t w = 0; w < vm->plan->weight_count; w++) {
    if (pen_vm_has_weight(vm, w) && !vm->plan->weights[w].frozen) {
      weights[vm->weight_count++] = w;
    }
  }
  vm->weights = weights;
}

static void bind_add_tied(struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->plan->tie_count; i++) {
    vm->add_tied.call.dim[0] = (int64_t)vm->plan->weights[vm->plan->ties[i].weight].count;
    vm->add_tied.call.prepared =
        vm->device->prepare(PEN_OP_ADD, PEN_F32, vm->add_tied.call.dim, vm->add_tied.call.real);
    vm->add_tied.run = vm->device->kernel_of(PEN_OP_ADD, PEN_F32);
    vm->add_tied.call.stream = vm->streams.compute;
  }
}

/* AdamW's settings and the step's statistics: in the device control block, or in host memory, where
 * the host executor sets the statistics step by step. */
static void place_control(struct pen_vm *vm, const struct pen_vm *first) {
  if (vm->device->asynchronous) {
    vm->step_stats = (double *)(vm->arena + vm->memory->step_stats_offset);
    vm->base = (const struct pen_adamw *)(vm->arena + vm->memory->staged_input_offset);
    vm->adamw = (struct pen_adamw *)(vm->arena + vm->memory->settings_offset);
  } else {
    vm->base = &vm->host_base;
    vm->adamw = first == NULL ? &vm->host_adamw : first->adamw;
  }
}

void pen_vm_open(struct pen_vm *vm, const struct pen_vm_config *config) {
  struct pen_transport *transport = config->transport;
  const struct pen_plan *plan = transport->plan;
  const uint32_t rank = transport->rank;
  *vm = (struct pen_vm){
      .plan = plan,
      .profile = transport->profile,
      .program = &transport->profile->ranks[rank],
      .memory = &plan->memory[rank],
      .rank = rank,
      .replica = transport->replica,
      .endpoint = transport->endpoint,
      .transport = transport,
      .device = transport->device,
      .executor = config->executor,
      .stream_state = config->stream_state,
      .stream_profile = config->stream_profile,
      .handlers = config->trace == NULL ? pen_handlers : pen_handlers_traced,
      .arena = transport->arena,
      .lag = config->lag,
      .data = *config->data,
      .trace = config->trace,
  };
  if (config->streams != NULL) {
    vm->streams = *config->streams;
  }
  vm->data.sequence = vm->profile->sequence;
  vm->data.first_microbatch = (uint64_t)vm->replica * vm->profile->microbatch_count;
  place_control(vm, config->first);
  pen_collectives_open(vm);
  bind_ops(vm);
  list_weights(vm);
  pen_list_optimizer_tensors(vm);
  pen_list_matrices(vm);
  bind_add_tied(vm);
  if (vm->device->error() != NULL) { /* an operation that this device cannot do */
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, device %s: %s", vm->rank, vm->device->name,
             vm->device->error());
  }
  if (transport->ops->wait_sent != NULL) {
    vm->send_hazards = pen_send_hazards_of(plan, vm->profile, rank);
  }
  vm->sent_bytes = pen_sent_bytes(vm);
}

/* Constants are persistent tensors: their addresses do not depend on the frame. */
void pen_vm_start(struct pen_vm *vm) {
  static const struct pen_frame arena = {{0}};
  pen_vm_call(vm, vm->program->start_first_op, vm->program->start_op_count, &arena);
  vm->device->stream_synchronize(vm->streams.compute);
}
