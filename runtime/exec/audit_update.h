/* audit_update.h: the audit of UPDATE: in each step that is audited, AdamW on one weight of the
 * rank, drawn by seed, step and rank, is computed twice. What UPDATE has left of the weight and its
 * moments a step earlier has checksums, which are compared first; so is how often it was updated.
 */
#ifndef PEN_AUDIT_UPDATE_H
#define PEN_AUDIT_UPDATE_H

#include "runtime/exec/exec.h"
#include "runtime/exec/weight_arrays.h"
#include "runtime/plan/audit_sum.h"

enum { PEN_AUDIT_UPDATED = 3 /* value, exp_avg, exp_avg_sq */ };

/* The checksums before the next step that is audited. */
struct pen_audit_update {
  uint64_t step;
  uint32_t weight;  /* PEN_NONE: the rank trains none */
  uint64_t updates; /* of the weight, before the step */
  struct pen_audit_sum sums[PEN_AUDIT_UPDATED];
};

/* Before step `step` is run, if it is audited: draws the weight and makes its checksums. */
void pen_audit_update_sum(struct pen_audit_update *update, const struct pen_vm *vm, uint64_t seed,
                          uint64_t step);

/* Of the weight that was drawn its checksums; these, then AdamW, twice. Muon computes no element by
 * itself: what it updates has checksums alone. */
void pen_audit_update_check(const struct pen_audit_update *update, const struct pen_vm *vm,
                            const struct pen_adamw_tensor *tensor);
void pen_audit_update_run(const struct pen_audit_update *update, struct pen_vm *vm,
                          const struct pen_adamw_tensor *tensor);

/* The checksum of a persistent tensor that the programs of a rank read: a weight or constant. */
struct pen_audit_weight {
  const struct pen_tensor *tensor;
  uint32_t stage, writer; /* whose programs read it; a global rank */
  bool changes;           /* UPDATE changes it: its checksum is that of `step` alone */
  uint64_t step;
  struct pen_audit_sum sum;
};

/* Of all profiles of a rank. */
struct pen_audit_weights {
  struct pen_audit_weight *weight;
  uint32_t count, capacity;
};

/* Adds what the programs of a profile read; index_of[tensor] becomes its index, if it is among
 * these. Allocates. */
void pen_audit_weights_add(struct pen_audit_weights *weights, const struct pen_vm *vm,
                           uint32_t *index_of);

/* Makes the checksums of all, for step `step` (from 1); of those of a stage that UPDATE changes. */
void pen_audit_weights_sum(struct pen_audit_weights *weights, const struct pen_vm *vm,
                           uint64_t step);
void pen_audit_weights_sum_stage(struct pen_audit_weights *weights, const struct pen_vm *vm,
                                 uint64_t step, uint32_t stage);

/* The same of what a head reads of a tied weight that another rank updates: its writer has made the
 * checksum, which follows it; that of the writer, for the head's rank. */
void pen_audit_weights_take_tied(struct pen_audit_weights *weights, const struct pen_vm *vm,
                                 uint64_t step);
void pen_audit_weights_pass_tied(const struct pen_vm *vm);

#endif
