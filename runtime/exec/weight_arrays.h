/* weight_arrays.h: where a rank has what belongs to a weight that is trained. */
#ifndef PEN_WEIGHT_ARRAYS_H
#define PEN_WEIGHT_ARRAYS_H

#include "runtime/exec/exec.h"
#include "runtime/plan/shard.h"

/* The elements that this replica updates: its shard where moments are sharded, else all. */
struct pen_weight_arrays {
  float *value, *gradient, *exp_avg, *exp_avg_sq;
  uint16_t *bf16; /* null: the weight has no copy */
  struct pen_shard own;
  double weight_decay;
};

struct pen_weight_arrays pen_weight_arrays_of(const struct pen_vm *vm, uint32_t weight);

/* A shard of a gradient. */
float *pen_gradient_shard(const struct pen_vm *vm, uint32_t weight, struct pen_shard shard);

/* The weight that has its value or its copy, or with `gradients` its gradient, at an offset of the
 * rank's arena. For a tied weight of another rank: what this one reads of it, or with `gradients`
 * what it adds to it. PEN_NONE: there is none. */
uint32_t pen_weight_at(const struct pen_vm *vm, uint64_t offset, bool gradients);

#endif
