/* audit_weights.c: the checksums of weights and constants (see audit_weights.h). */
#include "runtime/exec/audit_weights.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/operands.h"
#include "runtime/exec/tensor_sum.h"
#include "runtime/exec/weight_arrays.h"

static uint32_t add_weight(struct pen_audit_weights *weights, const struct pen_vm *vm,
                           const struct pen_tensor *tensor, uint32_t stage) {
  for (uint32_t i = 0; i < weights->count; i++) {
    const struct pen_audit_weight *weight = &weights->weight[i];
    if (weight->stage == stage && weight->tensor->offset == tensor->offset &&
        weight->tensor->bytes == tensor->bytes) {
      return i;
    }
  }
  if (weights->count == weights->capacity) {
    weights->capacity = 2 * weights->capacity + 16;
    weights->weight = realloc(weights->weight, weights->capacity * sizeof *weights->weight);
    pen_check(weights->weight != NULL, "no memory for %u weights", weights->capacity);
  }
  const uint32_t found = pen_weight_at(vm, tensor->offset, false);
  weights->weight[weights->count] = (struct pen_audit_weight){
      .tensor = tensor,
      .stage = stage,
      .writer = pen_endpoint_process(vm->endpoint, PEN_PIPELINE,
                                     found == PEN_NONE ? vm->rank : vm->plan->weights[found].rank),
      .changes = found != PEN_NONE && !vm->plan->weights[found].frozen};
  return weights->count++;
}

void pen_audit_weights_add(struct pen_audit_weights *weights, const struct pen_vm *vm,
                           uint32_t *index_of) {
  for (uint32_t p = 0; p < vm->program->program_count; p++) {
    const struct pen_program *program = &vm->program->programs[p];
    for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++) {
      const struct pen_op *op = &vm->program->ops[i];
      for (uint32_t k = 0; k < pen_operands_of(op->kind).inputs; k++) {
        const uint32_t index = op->operand[k];
        const struct pen_tensor *tensor = index == PEN_NONE ? NULL : &vm->program->tensors[index];
        if (tensor != NULL && tensor->base == PEN_BASE_PERSISTENT) {
          index_of[index] = add_weight(weights, vm, tensor, program->stage);
        }
      }
    }
  }
}

static void sum_weight(const struct pen_vm *vm, struct pen_audit_weight *weight, uint64_t step) {
  weight->sum = pen_tensor_sum(vm->arena + weight->tensor->offset, weight->tensor->bytes);
  weight->step = step;
}

void pen_audit_weights_sum(struct pen_audit_weights *weights, const struct pen_vm *vm,
                           uint64_t step) {
  for (uint32_t i = 0; i < weights->count; i++) {
    sum_weight(vm, &weights->weight[i], step);
  }
}

void pen_audit_weights_sum_stage(struct pen_audit_weights *weights, const struct pen_vm *vm,
                                 uint64_t step, uint32_t stage) {
  for (uint32_t i = 0; i < weights->count; i++) {
    if (weights->weight[i].stage == stage && weights->weight[i].changes) {
      sum_weight(vm, &weights->weight[i], step);
    }
  }
}

/* Does the head of a tied weight, or of its piece, read what another rank updates? A tensor rank
 * reads its own pieces. */
static bool is_between_ranks(const struct pen_vm *vm, const struct pen_tie *tie) {
  const struct pen_weight *weight = &vm->plan->weights[tie->weight];
  return tie->rank != weight->rank && pen_has_piece(vm->plan, weight, vm->endpoint->global);
}

/* Of the piece of the first tensor rank in the same place, which is what the last one's tensor and
 * message have, too, where it has fewer tokens. */
static uint64_t tied_bytes(const struct pen_vm *vm, const struct pen_tie *tie) {
  const size_t own = (size_t)(tie - vm->plan->ties) % pen_member_tie_count(vm->plan);
  return vm->plan->weights[vm->plan->ties[own].weight].count * pen_dtype_bytes(tie->dtype);
}

static void take_tied(struct pen_audit_weights *weights, const struct pen_vm *vm,
                      const struct pen_tie *tie, uint64_t step) {
  for (uint32_t i = 0; i < weights->count; i++) {
    struct pen_audit_weight *weight = &weights->weight[i];
    if (weight->tensor->offset == tie->value_offset) {
      memcpy(&weight->sum,
             vm->arena + tie->value_offset + pen_audit_sum_offset(tied_bytes(vm, tie)),
             sizeof weight->sum);
      weight->step = step;
    }
  }
}

void pen_audit_weights_take_tied(struct pen_audit_weights *weights, const struct pen_vm *vm,
                                 uint64_t step) {
  for (uint32_t i = 0; i < vm->plan->tie_count; i++) {
    if (is_between_ranks(vm, &vm->plan->ties[i])) {
      take_tied(weights, vm, &vm->plan->ties[i], step);
    }
  }
}

void pen_audit_weights_pass_tied(const struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->plan->tie_count; i++) {
    const struct pen_tie *tie = &vm->plan->ties[i];
    const struct pen_weight *weight = &vm->plan->weights[tie->weight];
    if (is_between_ranks(vm, tie) && weight->rank == vm->rank) {
      unsigned char *value =
          vm->arena + (tie->dtype == PEN_BF16 ? weight->bf16_offset : weight->value_offset);
      const uint64_t bytes = tied_bytes(vm, tie);
      const struct pen_audit_sum sum = pen_tensor_sum(value, bytes);
      memcpy(value + pen_audit_sum_offset(bytes), &sum, sizeof sum);
    }
  }
}
