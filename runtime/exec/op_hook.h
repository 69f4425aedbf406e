/* op_hook.h: how a command gets more of a forward step than its loss: score and generate.
 *
 * A hook replaces the kernel of every op of one kind in a rank's bound ops, before the first step:
 * the plan, its actions and the memory stay what the generator proved. The hook gets the op's
 * operands, and may call the op's own kernel on them. */
#ifndef PEN_OP_HOOK_H
#define PEN_OP_HOOK_H

#include "runtime/exec/exec.h"

struct pen_run;

/* What replaces an op's kernel: its call's `prepared` is the struct pen_op_hook. */
struct pen_op_hook {
  pen_kernel *run;    /* the replacement */
  void *context;      /* of the caller */
  pen_kernel *kernel; /* what was replaced, and what its call's `prepared` was */
  void *prepared;
};

/* Hooks every op of that kind, of which a rank may have none. `hook` must outlive the vm; its last
 * two fields are filled. One hook serves ops that are prepared alike. CROSS_ENTROPY is hooked where
 * HEAD_LOSS calls it, too, for some of the rows at a time; CROSS_ENTROPY_COLUMNS likewise. On an
 * asynchronous device the hook of a data op fills host memory; the operands of another op are on
 * the device, and its hook may only enqueue. */
void pen_vm_hook(struct pen_vm *vm, enum pen_op_kind kind, struct pen_op_hook *hook);

/* What a command does in each rank besides running steps; null: nothing. `vm` is that of the step's
 * profile. */
struct pen_command_hooks {
  bool gives_result; /* in `left`, instead of the loss of the steps */
  /* Before the seal, for every profile in turn. */
  void (*opened)(const struct pen_run *run, struct pen_vm *vm);
  /* Chooses the bucket of a step, on all ranks alike, when this one has ended the step before, of
   * which `vm` is. False: the run was aborted. */
  bool (*choose)(const struct pen_run *run, struct pen_vm *vm, uint64_t step, uint32_t *bucket);
  /* After the rank's end of a step, when its device is done, too; false: aborted. */
  bool (*stepped)(const struct pen_run *run, struct pen_vm *vm);
  void (*left)(const struct pen_run *run, struct pen_vm *vm); /* after the last */
};

#endif
