/* resolve.c: turns a rank's tables into calls that are ready but for their addresses' bases, before
 * the seal. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/device/stream_executor.h"
#include "runtime/exec/vm.h"

static const char *const signature_of[] = {
#define PEN_OP(kind, dims, reals, signature, flops, workspace, meaning) signature,
#define PEN_DATA_OP(kind, dims, reals, signature, flops, workspace, meaning) signature,
#include "kernels/ops.def"
};

/* Every name of the signature but the arrow. */
struct pen_operand_count pen_operands_of(uint16_t kind) {
  struct pen_operand_count count = {0};
  bool within = false;
  pen_assert(kind < PEN_OP_COUNT);
  for (const char *c = signature_of[kind]; *c != '\0'; c++) {
    bool blank = *c == ' ';
    bool arrow = c[0] == '-' && c[1] == '>';
    count.inputs = arrow ? count.all : count.inputs;
    count.all += !blank && !within && !arrow;
    within = !blank && !arrow;
    c += arrow; /* skips its point */
  }
  pen_assert(count.all <= PEN_OPERANDS_MAX);
  return count;
}

/* What resolving one rank needs to remember. */
struct resolving {
  struct pen_vm *vm;
  bool fixed[PEN_BASES]; /* bases that are the same in every frame: their operands are set once */
  uint32_t patch_count;
};

static void find_fixed_bases(struct resolving *resolving) {
  const struct pen_rank_program *program = resolving->vm->program;
  for (uint32_t b = 0; b < PEN_BASES; b++) {
    resolving->fixed[b] = program->frame_count > 0;
    for (uint32_t f = 1; f < program->frame_count; f++) {
      resolving->fixed[b] =
          resolving->fixed[b] && program->frames[f].base[b] == program->frames[0].base[b];
    }
  }
  resolving->fixed[PEN_BASE_PERSISTENT] = true; /* constants are computed before any row */
}

/* Sets an address in a call, or notes that each row must. */
static void resolve_address(struct resolving *resolving, void **where, uint32_t index) {
  struct pen_vm *vm = resolving->vm;
  const struct pen_rank_program *program = vm->program;
  if (index == PEN_NONE) {
    return; /* the operand is absent: null */
  }
  pen_assert(index < program->tensor_count && program->tensors[index].base < PEN_BASES);
  const struct pen_tensor *tensor = &program->tensors[index];
  if (!resolving->fixed[tensor->base]) {
    vm->relocations[resolving->patch_count++] =
        (struct pen_relocation){.where = where, .offset = tensor->offset, .base = tensor->base};
    return;
  }
  uint64_t base = program->frame_count > 0 ? program->frames[0].base[tensor->base] : 0;
  *where = vm->arena + base + tensor->offset;
}

static const char *const name_of[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, workspace, meaning) [PEN_OP_##kind] = #kind,
#include "kernels/ops.def"
};

static void resolve_op(struct resolving *resolving, struct pen_bound_op *ready,
                       const struct pen_op *op) {
  struct pen_vm *vm = resolving->vm;
  uint32_t operand_count = pen_operands_of(op->kind).all;
  for (uint32_t i = 0; i < operand_count; i++) {
    resolve_address(resolving, &ready->call.operand[i], op->operand[i]);
  }
  resolve_address(resolving, &ready->call.workspace, op->workspace);
  memcpy(ready->call.dim, op->dim, sizeof op->dim);
  memcpy(ready->call.real, op->real, sizeof op->real);
  ready->run = pen_data_op(op->kind, op->dtype);
  if (ready->run != NULL && vm->queue != NULL) {
    ready->run = pen_stream_data_op();
    ready->call.prepared = pen_staging_of(vm, op);
  } else if (ready->run != NULL) {
    ready->call.prepared = &vm->data;
  } else {
    ready->run = vm->device->kernel_of(op->kind, op->dtype);
    pen_check(ready->run != NULL, "the device %s has no kernel for the operation %s",
              vm->device->name, name_of[op->kind]);
    ready->call.prepared = vm->device->prepare(op->kind, op->dtype, op->dim, op->real);
  }
}

static void resolve_ops(struct pen_vm *vm) {
  uint32_t op_count = vm->program->op_count;
  struct resolving resolving = {.vm = vm};
  find_fixed_bases(&resolving);
  vm->ops = calloc(op_count + 1u, sizeof *vm->ops);
  vm->relocations = calloc((size_t)op_count * (PEN_OPERANDS_MAX + 1) + 1, sizeof *vm->relocations);
  vm->first_relocation = calloc(op_count + 1u, sizeof *vm->first_relocation);
  pen_check(vm->ops != NULL && vm->relocations != NULL && vm->first_relocation != NULL,
            "no memory for %u operations", op_count);
  for (uint32_t i = 0; i < op_count; i++) {
    vm->first_relocation[i] = resolving.patch_count;
    resolve_op(&resolving, &vm->ops[i], &vm->program->ops[i]);
  }
  vm->first_relocation[op_count] = resolving.patch_count;
  if (vm->device->error() != NULL) { /* an operation that this device cannot do */
    pen_fail(PEN_EXIT_SYSTEM, "rank %u, device %s: %s", vm->rank, vm->device->name,
             vm->device->error());
  }
}

/* The rank's weights that learn. */
static void list_weights(struct pen_vm *vm) {
  uint32_t *weights = calloc(vm->plan->weight_count + 1, sizeof *weights);
  pen_check(weights != NULL, "no memory for %u weights", vm->plan->weight_count);
  for (uint32_t w = 0; w < vm->plan->weight_count; w++) {
    if (vm->plan->weights[w].rank == vm->rank && !vm->plan->weights[w].frozen) {
      weights[vm->weight_count++] = w;
    }
  }
  vm->weights = weights;
}

uint32_t pen_unsharded_weight(const struct pen_plan *plan, uint32_t rank,
                              const struct pen_tensor *tensor) {
  uint32_t found = PEN_NONE;
  for (uint32_t w = 0; w < plan->weight_count && found == PEN_NONE; w++) {
    size_t length = strlen(plan->weights[w].name);
    bool same = strncmp(tensor->name, plan->weights[w].name, length) == 0 &&
                strcmp(tensor->name + length, tensor->dtype == PEN_BF16 ? ".bf16" : "") == 0;
    found = same && plan->weights[w].rank == rank ? w : PEN_NONE;
  }
  pen_check(found != PEN_NONE, "the plan has no weight for the tensor %s", tensor->name);
  return found;
}

static void list_unsharded(struct pen_vm *vm) {
  const struct pen_rank_program *program = vm->program;
  vm->unsharded = calloc(program->tensor_count + 1u, sizeof *vm->unsharded);
  pen_check(vm->unsharded != NULL, "no memory for %u tensors", program->tensor_count);
  for (uint32_t t = 0; t < program->tensor_count; t++) {
    const struct pen_tensor *tensor = &program->tensors[t];
    if (tensor->base == PEN_BASE_UNSHARDED) {
      uint32_t weight = pen_unsharded_weight(vm->plan, vm->rank, tensor);
      const struct pen_weight *w = &vm->plan->weights[weight];
      bool copy = tensor->dtype == PEN_BF16;
      vm->unsharded[vm->unsharded_count++] =
          (struct pen_unsharded){weight, w->stage, copy ? sizeof(uint16_t) : sizeof(float),
                                 tensor->offset, copy ? w->bf16_offset : w->value_offset};
    }
  }
}

static void resolve_join(struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->plan->tie_count; i++) {
    vm->join.call.dim[0] = (int64_t)vm->plan->weights[vm->plan->ties[i].weight].count;
    vm->join.call.prepared =
        vm->device->prepare(PEN_OP_ADD, PEN_F32, vm->join.call.dim, vm->join.call.real);
    vm->join.run = vm->device->kernel_of(PEN_OP_ADD, PEN_F32);
  }
}

void pen_vm_open(struct pen_vm *vm, const struct pen_plan *plan, const struct pen_profile *profile,
                 uint32_t rank, unsigned char *arena, struct pen_transport *transport,
                 struct pen_stream_state *queue, const struct pen_data *data,
                 struct pen_trace *trace) {
  const struct pen_executor *walk = queue == NULL ? &pen_host_executor : &pen_stream_executor;
  *vm = (struct pen_vm){
      .plan = plan,
      .profile = profile,
      .program = &profile->ranks[rank],
      .rank = rank,
      .replica = transport->replica,
      .transport = transport,
      .device = queue == NULL ? &pen_cpu : queue->device,
      .walk = walk,
      .queue = queue,
      .stream = queue == NULL ? NULL : queue->stream,
      .handlers = trace == NULL ? walk->handlers : walk->handlers_traced,
      .arena = arena,
      .data = *data,
      .trace = trace,
  };
  vm->data.sequence = profile->sequence;
  vm->queued.feeds = calloc(plan->staged_input_count + 1u, sizeof *vm->queued.feeds);
  pen_check(vm->queued.feeds != NULL, "no memory for %u feeds", plan->staged_input_count);
  resolve_ops(vm);
  list_weights(vm);
  list_unsharded(vm);
  resolve_join(vm);
  vm->sources = calloc(plan->replica_count, sizeof *vm->sources);
  pen_check(vm->sources != NULL, "no memory for %u replicas", plan->replica_count);
}

/* Constants are persistent tensors: whatever frame, they lie at the same place. */
void pen_vm_start(struct pen_vm *vm) {
  static const struct pen_frame arena = {{0}};
  pen_vm_call(vm, vm->program->start_first_op, vm->program->start_op_count, &arena);
  vm->device->stream_synchronize(vm->stream);
}
