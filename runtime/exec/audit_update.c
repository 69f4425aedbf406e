/* audit_update.c: AdamW on one weight, twice (see audit_update.h).
 *
 * AdamW works element by element, so a run of elements has the bits that it has within the whole
 * weight: the audit memory holds all that belongs to a run, and the weight goes run by run. */
#include "runtime/exec/audit_update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/audit_draw.h"
#include "runtime/exec/audit_report.h"
#include "runtime/exec/tensor_sum.h"

enum { NAME_BYTES = 256, ARRAYS = 5 };

/* What AdamW reads and writes of a weight. */
struct update_array {
  const char *ending; /* of its name */
  uint8_t dtype;
  unsigned char *at; /* null: the weight has none */
};

/* First those that have checksums. */
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
    for (int i = 0; i < PEN_AUDIT_UPDATED; i++) {
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
  for (int i = 0; i < PEN_AUDIT_UPDATED; i++) {
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
                                       .lag = tensor->lag};
  vm->device->adamw_step(&run, 1, vm->adamw, vm->streams.compute);
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

void pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                          const struct pen_adamw_tensor *tensor) {
  const uint64_t element_bytes = (ARRAYS - 1) * sizeof(float) + sizeof(uint16_t),
                 most = (vm->memory->audit_bytes - (uint64_t)ARRAYS * PEN_ALIGNMENT_BYTES) /
                        element_bytes / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES;
  struct update_array list[ARRAYS];
  list_arrays(tensor, list);
  check_sums(update, vm, tensor->count, list);
  check_count(update, vm, tensor);
  for (uint64_t first = 0; first < tensor->count; first += most) {
    const uint64_t left = tensor->count - first;
    audit_run(update, vm, tensor, first, left < most ? left : most);
  }
}
