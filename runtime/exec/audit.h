/* audit.h: train --audit N: in every N-th step each rank runs one drawn action (audit_draw.h) twice
 * and compares all bits of what it makes; and compares the checksums of what that action reads with
 * those made by whoever wrote it.
 *
 * The action runs op by op. Each op is first run with its outputs in the audit memory (plan.h,
 * memory.audit), accumulators from a copy; then what it reads is compared with its checksum; then
 * the step's own run follows, and both results are compared. Checksums are made
 *   - of weights and constants: at the start; of weights again after UPDATE and ALL_GATHER_WEIGHT,
 *     when the next step is audited and the drawn stage reads them
 *   - of whole weights that UNSHARD gathers: after UNSHARD
 *   - of activations, saved tensors and accumulators: after the op of this rank that wrote them
 *   - of what another stage passes on, and of a tied weight for a head on another rank: by the rank
 *     that writes it, which knows what this rank audits. The checksum follows the tensor in its
 *     buffer and its message (runtime/plan/audit_sum.h)
 *   - within the action: of what the audit computed.
 * UPDATE of one weight is audited as well (audit_update.h). Collectives, and exchanges between
 * tensor ranks, are not run twice: what they bring counts from when it has arrived. Each tensor
 * rank draws an action of its own; what stages pass on goes between ranks that are the same tensor
 * rank.
 */
#ifndef PEN_AUDIT_H
#define PEN_AUDIT_H

#include "runtime/exec/audit_update.h"
#include "runtime/exec/exec.h"

/* What the audits of a rank share, whatever the step's shape. */
struct pen_audit {
  uint64_t every, seed;
  struct pen_audit_weights weights;
  struct pen_audit_update update;
};

/* What the audited action does with a tensor: bits. */
enum {
  PEN_AUDIT_WRITES = 1,      /* before it reads it, if ever */
  PEN_AUDIT_READS = 2,       /* what was there before the action */
  PEN_AUDIT_ACCUMULATES = 4, /* adds to what was there */
  PEN_AUDIT_SUM_KNOWN = 8,
};

/* Of one profile: allocated when the rank opens. */
struct pen_audit_state {
  struct pen_audit *audit;
  uint32_t *weight;           /* [tensor]: index into audit->weights, or PEN_NONE */
  uint8_t *use;               /* [tensor]: of the audited action */
  struct pen_audit_sum *sums; /* [tensor] */
  uint32_t *passed[2];        /* [stage]: the microbatch whose output (1: input gradient) the next
                                 (previous) stage's rank audits a reader of; PEN_NONE: none */
  const struct pen_action *action; /* audited in this step; null: none */
  const struct pen_action
      *adds_before[2]; /* the last before it that add to its accumulators, or null */
  bool done;           /* it has run */
};

/* Opens the audits of a profile of this rank. Allocates. */
void pen_audit_open(struct pen_audit *audit, struct pen_vm *vm);

/* When weights are loaded and constants are computed, before step `step` (from 1). */
void pen_audit_start(struct pen_audit *audit, const struct pen_vm *vm, uint64_t step);

/* The rest takes a vm that is audited. Before a step's first action. */
void pen_audit_begin_step(struct pen_vm *vm);

/* Runs the program of F, B, I or W. */
void pen_audit_call(struct pen_vm *vm, const struct pen_action *action);

/* Whether UPDATE of a weight is audited in this step: pen_audit_update_run() runs it. After UPDATE.
 */
bool pen_audit_updates(const struct pen_vm *vm, uint32_t weight);
void pen_audit_updated(struct pen_vm *vm);

/* After UPDATE or ALL_GATHER_WEIGHT, after WAIT_V, after UNSHARD. */
void pen_audit_weights_written(struct pen_vm *vm);
void pen_audit_tied_value_arrived(struct pen_vm *vm);
void pen_audit_unsharded(struct pen_vm *vm, const struct pen_action *action);

#endif
