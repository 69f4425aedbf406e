/* weight_arrays.h: where a rank has what belongs to a weight that is trained. */
#ifndef PEN_WEIGHT_ARRAYS_H
#define PEN_WEIGHT_ARRAYS_H

#include "runtime/exec/exec.h"
#include "runtime/plan/shard.h"

/* The elements of a weight that this replica updates: its shard where moments are sharded, else
 * all; and what its optimizer reads and writes of them. */
struct pen_shard pen_updated_shard(const struct pen_vm *vm, uint32_t weight);
struct pen_adamw_tensor pen_updated_tensor(const struct pen_vm *vm, uint32_t weight);

/* Updates tensors that have one optimizer. */
void pen_update_tensors(const struct pen_vm *vm, const struct pen_adamw_tensor *tensors,
                        size_t count);

/* The elements of a weight's gradient that this replica keeps. */
struct pen_shard pen_kept_gradient(const struct pen_vm *vm, uint32_t weight);

/* Lists what NORM and UPDATE do, once: fills `norms` and `updates` of the vm, whose `weights` are
 * set. Allocates. */
void pen_list_optimizer_tensors(struct pen_vm *vm);

/* The weight that has its value or its copy, or with `gradients` its gradient, at an offset of the
 * rank's arena. For a tied weight of another rank: what this one reads of it, or with `gradients`
 * what it adds to it. PEN_NONE: there is none. */
uint32_t pen_weight_at(const struct pen_vm *vm, uint64_t offset, bool gradients);

#endif
