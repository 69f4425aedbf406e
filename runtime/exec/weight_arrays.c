/* weight_arrays.c: addresses of a weight, its gradient and moments, and lists of them (see
 * weight_arrays.h). */
#include "runtime/exec/weight_arrays.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_state.h"

struct pen_shard pen_updated_shard(const struct pen_vm *vm, uint32_t weight) {
  return pen_kept_of(vm->plan, weight, vm->replica, pen_moments_are_sharded(vm->plan));
}

struct pen_shard pen_kept_gradient(const struct pen_vm *vm, uint32_t weight) {
  return pen_kept_of(vm->plan, weight, vm->replica, vm->plan->weights[weight].gradient_sharded);
}

/* A shard of a gradient. */
static float *gradient_shard(const struct pen_vm *vm, uint32_t weight, struct pen_shard shard) {
  const struct pen_weight *w = &vm->plan->weights[weight];
  return (float *)(vm->arena + w->gradient_offset) + (w->gradient_sharded ? 0 : shard.first);
}

static float *moment_at(const struct pen_vm *vm, uint64_t offset) {
  return offset == UINT64_MAX ? NULL : (float *)(vm->arena + offset);
}

struct pen_adamw_tensor pen_updated_tensor(const struct pen_vm *vm, uint32_t weight) {
  const struct pen_weight *w = &vm->plan->weights[weight];
  const struct pen_shard own = pen_updated_shard(vm, weight);
  return (struct pen_adamw_tensor){
      .parameter = (float *)(vm->arena + w->value_offset) + (w->value_sharded ? 0 : own.first),
      .gradient = gradient_shard(vm, weight, own),
      .exp_avg = moment_at(vm, w->exp_avg_offset),
      .exp_avg_sq = moment_at(vm, w->exp_avg_sq_offset),
      .copy = w->bf16_offset == UINT64_MAX
                  ? NULL
                  : (uint16_t *)(vm->arena + w->bf16_offset) + (w->bf16_sharded ? 0 : own.first),
      .count = own.count,
      .weight_decay = w->weight_decay,
      .rate = w->rate,
      .lag = pen_lag_of(vm->lag, weight),
      .momentum = vm->plan->optimizer.momentum,
      .nesterov = vm->plan->optimizer.nesterov,
      .optimizer = w->optimizer,
      .weight = weight,
      .parts = (uint8_t)w->matrix_parts,
      .steps = (uint8_t)vm->plan->optimizer.ns_steps,
      .rows = w->dim[0],
      .workspace = vm->arena + vm->memory->muon_offset,
      .pieces = w->split_count,
      .first_row = w->dim_count > 1 ? w->run_first / w->tensor_dim[1] : 0,
      .first_column = w->dim_count > 1 ? w->run_first % w->tensor_dim[1] : 0,
      .matrix_rows = w->tensor_dim[0],
      .matrix_columns = w->tensor_dim[1]};
}

void pen_update_tensors(const struct pen_vm *vm, const struct pen_adamw_tensor *tensors,
                        size_t count) {
  pen_optimizer_step *const step[PEN_OPTIMIZERS] = {
      [PEN_OPTIMIZER_ADAMW] = vm->device->adamw_step,
      [PEN_OPTIMIZER_SGD] = vm->device->sgd_step,
      [PEN_OPTIMIZER_MUON] = vm->device->muon_apply,
      [PEN_OPTIMIZER_BALANCE] = vm->device->balance_step,
      [PEN_OPTIMIZER_CHOICES] = vm->device->choices_step};
  step[tensors->optimizer](tensors, count, vm->adamw, vm->streams.compute);
}

/* ---- the lists of NORM and UPDATE ---- */

/* Counts of choices are no gradient. */
static bool is_in_norm(const struct pen_weight *weight) {
  return weight->optimizer != PEN_OPTIMIZER_BALANCE && weight->optimizer != PEN_OPTIMIZER_CHOICES;
}

/* Of each tensor of a weight what the replica's shard has; the first group measures for all. The
 * entry of what is not in the norm is 0. */
static void list_norms_of(struct pen_vm *vm, uint32_t weight, struct pen_norm_tensor *norms) {
  const struct pen_weight *w = &vm->plan->weights[weight];
  const struct pen_shard shard = pen_shard_of(vm->plan, weight, vm->replica);
  const float *x = gradient_shard(vm, weight, shard);
  const uint64_t elements = w->count / pen_tensor_count(w);
  const bool counts = pen_vm_member(vm, PEN_SAME_SHARD) == 0 && is_in_norm(w);
  for (uint32_t n = 0; n < pen_tensor_count(w); n++) {
    const struct pen_shard tensor = {n * elements, elements}, has = pen_shard_common(shard, tensor);
    norms[vm->norm_count++] =
        (struct pen_norm_tensor){.x = x + (has.first - shard.first),
                                 .count = counts ? has.count : 0,
                                 .index = pen_first_entry(vm->plan, weight) + n};
  }
}

/* Of each weight that the rank owns. */
static void list_norms(struct pen_vm *vm) {
  const uint32_t most = vm->weight_count + vm->plan->stacked;
  struct pen_norm_tensor *norms = pen_allocate(most + 1u, sizeof *norms, "%u tensors", most);
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    const uint32_t weight = vm->weights[i];
    if (pen_vm_owns_weight(vm, weight)) {
      list_norms_of(vm, weight, norms);
    }
  }
  vm->norms = norms;
}

/* Elements [first, past) of a gradient, which become zero and no more. */
static void add_zeroed(struct pen_vm *vm, struct pen_adamw_tensor *updates, uint64_t offset,
                       uint64_t first, uint64_t past) {
  if (first < past) {
    updates[vm->update_count++] = (struct pen_adamw_tensor){
        .gradient = (float *)(vm->arena + offset) + first, .count = past - first};
  }
}

/* Of a matrix of Muon each part. */
static void prepare_parts(const struct pen_vm *vm, const struct pen_adamw_tensor *tensor) {
  static const double no_reals[PEN_REALS_MAX];
  const int64_t rows = (int64_t)tensor->matrix_rows,
                columns = (int64_t)(tensor->matrix_columns / tensor->parts);
  const int64_t dim[PEN_DIMS_MAX] = {rows < columns ? rows : columns,
                                     rows < columns ? columns : rows, tensor->steps};
  vm->device->prepare(PEN_OP_NEWTON_SCHULZ, PEN_F32, dim, no_reals);
}

/* All of a gradient becomes zero: what AdamW reads of it, the shards of other replicas, and the
 * head's gradients of ties, which were sent, or added. */
static void list_updates(struct pen_vm *vm) {
  const struct pen_plan *plan = vm->plan;
  const struct pen_tie *ties = pen_own_ties(vm->plan, vm->endpoint->global);
  const size_t most = 3 * (size_t)vm->weight_count + plan->tie_count;
  struct pen_adamw_tensor *updates =
      pen_allocate(most + 1, sizeof *updates, "%u weights", vm->weight_count);
  /* Muon's first (matrices.c); AdamW's last: it zeroes the others. */
  static const uint8_t order[] = {PEN_OPTIMIZER_MUON, PEN_OPTIMIZER_BALANCE, PEN_OPTIMIZER_CHOICES,
                                  PEN_OPTIMIZER_SGD, PEN_OPTIMIZER_ADAMW};
  _Static_assert(sizeof order == PEN_OPTIMIZERS, "each optimizer has its place");
  for (size_t o = 0; o < PEN_OPTIMIZERS; o++) {
    for (uint32_t i = 0; i < vm->weight_count; i++) {
      if (plan->weights[vm->weights[i]].optimizer == order[o]) {
        const struct pen_adamw_tensor tensor = pen_updated_tensor(vm, vm->weights[i]);
        if (order[o] == PEN_OPTIMIZER_MUON && tensor.count > 0) {
          prepare_parts(vm, &tensor);
        }
        updates[vm->update_count++] = tensor;
      }
    }
  }
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    const struct pen_weight *weight = &plan->weights[vm->weights[i]];
    const struct pen_shard own = pen_updated_shard(vm, vm->weights[i]);
    if (!weight->gradient_sharded) {
      add_zeroed(vm, updates, weight->gradient_offset, 0, own.first);
      add_zeroed(vm, updates, weight->gradient_offset, own.first + own.count, weight->count);
    }
  }
  for (uint32_t i = 0; i < pen_local_tie_count(plan); i++) {
    if (ties[i].rank == vm->rank && !plan->weights[ties[i].weight].frozen) {
      add_zeroed(vm, updates, ties[i].gradient_offset, 0,
                 pen_kept_gradient(vm, ties[i].weight).count);
    }
  }
  vm->updates = updates;
}

void pen_list_optimizer_tensors(struct pen_vm *vm) {
  list_norms(vm);
  list_updates(vm);
}

uint32_t pen_weight_at(const struct pen_vm *vm, uint64_t offset, bool gradients) {
  const struct pen_plan *plan = vm->plan;
  for (uint32_t i = 0; i < pen_local_tie_count(plan); i++) {
    const struct pen_tie *tie = pen_own_ties(vm->plan, vm->endpoint->global) + i;
    if (tie->rank == vm->rank && (gradients ? tie->gradient_offset : tie->value_offset) == offset) {
      return tie->weight;
    }
  }
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &plan->weights[w];
    if (pen_vm_has_weight(vm, w) &&
        (weight->value_offset == offset || weight->bf16_offset == offset ||
         (gradients && weight->gradient_offset == offset))) {
      return w;
    }
  }
  return PEN_NONE;
}
