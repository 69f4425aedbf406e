/* resolve.c: turns a rank's tables into calls that are ready but for their addresses' bases, before the seal. */
#include <stdlib.h>
#include <string.h>

#include "runtime/check.h"
#include "runtime/vm.h"

/* Operands of each kind, counted from its signature in ops.def: every name but the arrow. */
static uint32_t count_operands(const char *signature) {
  uint32_t count = 0;
  bool within = false;
  for (const char *c = signature; *c != '\0'; c++) {
    bool blank = *c == ' ';
    bool arrow = c[0] == '-' && c[1] == '>';
    count += !blank && !within && !arrow;
    within = !blank && !arrow;
    c += arrow; /* skips its point */
  }
  return count;
}

static const char *const signature_of[] = {
#define PEN_OP(kind, dims, reals, signature, flops, workspace, meaning) signature,
#define PEN_DATA_OP(kind, dims, reals, signature, flops, workspace, meaning) signature,
#include "kernels/ops.def"
};

static struct pen_place place_of(const struct pen_rank_program *program, uint32_t tensor) {
  if (tensor == PEN_NONE) {
    return (struct pen_place){.base = PEN_BASES};
  }
  pen_assert(tensor < program->tensor_count && program->tensors[tensor].base < PEN_BASES);
  return (struct pen_place){.base = program->tensors[tensor].base, .offset = program->tensors[tensor].offset};
}

static void resolve_op(struct pen_vm *vm, struct pen_ready_op *ready, const struct pen_op *op) {
  pen_assert(op->kind < PEN_OP_COUNT);
  ready->operand_count = count_operands(signature_of[op->kind]);
  pen_assert(ready->operand_count <= PEN_OPERANDS_MAX);
  for (uint32_t i = 0; i < ready->operand_count; i++) {
    ready->operand[i] = place_of(vm->program, op->operand[i]);
  }
  ready->workspace = place_of(vm->program, op->workspace);
  memcpy(ready->call.dim, op->dim, sizeof op->dim);
  memcpy(ready->call.real, op->real, sizeof op->real);
  ready->run = pen_data_op(op->kind);
  if (ready->run != NULL) {
    ready->call.prepared = &vm->data;
  } else {
    ready->run = pen_kernel_of(op->kind);
    ready->call.prepared = pen_kernels_prepare(op->kind, op->dim, op->real);
  }
  pen_assert(ready->run != NULL);
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

void pen_vm_open(struct pen_vm *vm, const struct pen_plan *plan, const struct pen_profile *profile, uint32_t rank,
                 unsigned char *arena, struct pen_transport *transport, const struct pen_data *data, struct pen_trace *trace) {
  *vm = (struct pen_vm){
      .plan = plan,
      .profile = profile,
      .program = &profile->ranks[rank],
      .rank = rank,
      .transport = transport,
      .handlers = trace == NULL ? pen_handlers : pen_handlers_traced,
      .arena = arena,
      .data = *data,
      .trace = trace,
  };
  vm->ops = calloc(vm->program->op_count + 1u, sizeof *vm->ops);
  pen_check(vm->ops != NULL, "no memory for %u operations", vm->program->op_count);
  for (uint32_t i = 0; i < vm->program->op_count; i++) {
    resolve_op(vm, &vm->ops[i], &vm->program->ops[i]);
  }
  list_weights(vm);
}

/* Constants are persistent tensors: they need no frame. */
void pen_vm_start(struct pen_vm *vm) {
  for (uint32_t b = 0; b < PEN_BASES; b++) {
    vm->base[b] = (uintptr_t)vm->arena;
  }
  pen_vm_call(vm, vm->program->start_first_op, vm->program->start_op_count);
}
