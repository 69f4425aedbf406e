/* audit_update.c: AdamW on one weight, twice (see audit_update.h).
 *
 * AdamW works element by element, so a run of elements has the bits that it has within the whole
 * weight: the audit memory holds all that belongs to a run, and the weight goes run by run. */
#include "runtime/exec/audit_update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/audit_draw.h"
#include "runtime/exec/audit_report.h"
#include "runtime/exec/operands.h"
#include "runtime/exec/tensor_sum.h"

enum { NAME_BYTES = 256, ARRAYS = 5 };

/* What AdamW reads and writes of a weight. */
struct update_array {
  const char *ending; /* of its name */
  uint8_t dtype;
  unsigned char *at; /* null: the weight has none */
};

/* First those that have checksums. SGD has its momentum in the place of the first moment. */
static void list_arrays(const struct pen_adamw_tensor *tensor, struct update_array list[ARRAYS]) {
  const struct update_array all[ARRAYS] = {
      {"", PEN_F32, (unsigned char *)tensor->parameter},
      {".exp_avg", PEN_F32, (unsigned char *)tensor->exp_avg},
      {".exp_avg_sq", PEN_F32, (unsigned char *)tensor->exp_avg_sq},
      {".grad", PEN_F32, (unsigned char *)tensor->gradient},
      {".bf16", PEN_BF16, (unsigned char *)tensor->copy}};
  memcpy(list, all, sizeof all);
}

void pen_audit_update_sum(struct pen_audit_update *update, const struct pen_vm *vm, uint64_t seed,
                          uint64_t step) {
  const struct pen_audit_draw draw = {.seed = seed, .step = step, .global = vm->endpoint->global};
  update->step = step;
  update->weight = vm->weight_count == 0
                       ? PEN_NONE
                       : vm->weights[pen_audit_draw_weight(&draw, vm->weight_count)];
  if (update->weight != PEN_NONE) {
    const struct pen_adamw_tensor tensor = pen_updated_tensor(vm, update->weight);
    struct update_array list[ARRAYS];
    list_arrays(&tensor, list);
    update->updates = vm->adamw->updates - tensor.lag;
    for (int i = 0; i < PEN_AUDIT_UPDATED && list[i].at != NULL; i++) {
      update->sums[i] = pen_tensor_sum(list[i].at, tensor.count * sizeof(float));
    }
  }
}

/* Reports an array, or a run of it from element `first` of the tensor on. */
static void report(const struct pen_audit_update *update, const struct pen_vm *vm,
                   const struct update_array *array, uint64_t first, uint64_t count,
                   struct pen_audit_finding *finding) {
  char name[NAME_BYTES];
  snprintf(name, sizeof name, "%s%s", vm->plan->weights[update->weight].name, array->ending);
  const struct pen_tensor tensor = {
      .name = name, .dtype = array->dtype, .bytes = count * pen_dtype_bytes(array->dtype)};
  finding->action = vm->action;
  finding->tensor = &tensor;
  finding->first_element = pen_updated_shard(vm, update->weight).first + first;
  finding->has = array->at;
  finding->writer = vm->endpoint->global;
  pen_audit_report(vm->endpoint, finding);
}

static void check_sums(const struct pen_audit_update *update, const struct pen_vm *vm,
                       uint64_t count, const struct update_array list[ARRAYS]) {
  pen_assert(update->step == vm->optimizer_step);
  for (int i = 0; i < PEN_AUDIT_UPDATED && list[i].at != NULL; i++) {
    const struct pen_audit_sum sum = pen_tensor_sum(list[i].at, count * sizeof(float));
    if (!pen_sums_equal(sum, update->sums[i])) {
      report(update, vm, &list[i], 0, count,
             &(struct pen_audit_finding){.written = update->sums[i]});
    }
  }
}

/* The number of this update, unless the step is skipped. */
static void check_count(const struct pen_audit_update *update, const struct pen_vm *vm,
                        const struct pen_adamw_tensor *tensor) {
  const uint64_t has = vm->adamw->updates - tensor->lag,
                 computed = update->updates + !isnan(vm->adamw->gradient_scale);
  const struct update_array array = {
      .ending = ".updates", .dtype = PEN_I32, .at = (unsigned char *)&has};
  if (has != computed) {
    report(update, vm, &array, 0, sizeof has / sizeof(int32_t),
           &(struct pen_audit_finding){.computed = (const unsigned char *)&computed});
  }
}

/* AdamW on `count` elements of the tensor, in the arrays in `list`. */
static void update_run(const struct pen_vm *vm, const struct update_array list[ARRAYS],
                       uint64_t count, const struct pen_adamw_tensor *tensor) {
  const struct pen_adamw_tensor run = {.parameter = (float *)list[0].at,
                                       .gradient = (float *)list[3].at,
                                       .exp_avg = (float *)list[1].at,
                                       .exp_avg_sq = (float *)list[2].at,
                                       .copy = (uint16_t *)list[4].at,
                                       .count = count,
                                       .weight_decay = tensor->weight_decay,
                                       .rate = tensor->rate,
                                       .lag = tensor->lag,
                                       .momentum = tensor->momentum,
                                       .nesterov = tensor->nesterov,
                                       .optimizer = tensor->optimizer};
  pen_update_tensors(vm, &run, 1);
}

/* Elements [first, first + count) of the tensor. */
static void audit_run(const struct pen_audit_update *update, const struct pen_vm *vm,
                      const struct pen_adamw_tensor *tensor, uint64_t first, uint64_t count) {
  struct update_array own[ARRAYS], apart[ARRAYS];
  unsigned char *at = vm->arena + vm->memory->audit_offset;
  list_arrays(tensor, own);
  memcpy(apart, own, sizeof own);
  for (int i = 0; i < ARRAYS; i++) {
    const uint32_t element_bytes = pen_dtype_bytes(own[i].dtype);
    if (own[i].at != NULL) {
      own[i].at += first * element_bytes;
      memcpy(at, own[i].at, count * element_bytes);
      apart[i].at = at;
      at += pen_aligned(count * element_bytes);
    }
  }
  update_run(vm, apart, count, tensor);
  update_run(vm, own, count, tensor);
  for (int i = 0; i < ARRAYS; i++) {
    if (own[i].at != NULL &&
        memcmp(own[i].at, apart[i].at, count * pen_dtype_bytes(own[i].dtype)) != 0) {
      report(update, vm, &own[i], first, count,
             &(struct pen_audit_finding){.computed = apart[i].at});
    }
  }
}

void pen_audit_update_check(const struct pen_audit_update *update, const struct pen_vm *vm,
                            const struct pen_adamw_tensor *tensor) {
  struct update_array list[ARRAYS];
  list_arrays(tensor, list);
  check_sums(update, vm, tensor->count, list);
  check_count(update, vm, tensor);
}

void pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                          const struct pen_adamw_tensor *tensor) {
  const uint64_t element_bytes = (ARRAYS - 1) * sizeof(float) + sizeof(uint16_t),
                 most = (vm->memory->audit_bytes - (uint64_t)ARRAYS * PEN_ALIGNMENT_BYTES) /
                        element_bytes / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES;
  pen_audit_update_check(update, vm, tensor);
  for (uint64_t first = 0; first < tensor->count; first += most) {
    const uint64_t left = tensor->count - first;
    audit_run(update, vm, tensor, first, left < most ? left : most);
  }
}

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

/* Does the head of a tied weight, or of its split, read what another rank updates? A tensor rank
 * reads its own splits. */
static bool is_between_ranks(const struct pen_vm *vm, const struct pen_tie *tie) {
  const struct pen_weight *weight = &vm->plan->weights[tie->weight];
  return tie->rank != weight->rank && pen_has_split(vm->plan, weight, vm->endpoint->global);
}

/* Of the split of the first tensor rank in the same place, which is what the last one's tensor and
 * message have, too, where it has fewer tokens. */
static uint64_t tied_bytes(const struct pen_vm *vm, const struct pen_tie *tie) {
  const size_t own = (size_t)(tie - vm->plan->ties) % pen_local_tie_count(vm->plan);
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
