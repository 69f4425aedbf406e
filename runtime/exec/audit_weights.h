/* audit_weights.h: the checksums of the persistent tensors that the programs of a rank read: its
 * weights and constants. */
#ifndef PEN_AUDIT_WEIGHTS_H
#define PEN_AUDIT_WEIGHTS_H

#include "runtime/exec/exec.h"
#include "runtime/plan/audit_sum.h"

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
