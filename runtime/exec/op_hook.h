/* tap.h: who wants more of a forward step than its loss: the commands score and generate.
 *
 * A tap takes the place of every op of one kind in a rank's calls, before the first step: the plan,
 * its rows and the memory stay what the generator proved. The tap gets the op's operands, and may
 * run the op's own kernel on them. */
#ifndef PEN_TAP_H
#define PEN_TAP_H

#include "runtime/exec/vm.h"

struct pen_run;

/* What stands in the place of an op: its call's `prepared` is the struct pen_op_hook. */
struct pen_op_hook {
  pen_kernel *run;    /* in the place of the kernel */
  void *context;      /* the tapper's */
  pen_kernel *kernel; /* what was there, and what its call's `prepared` was */
  void *prepared;
};

/* Puts a tap before every op of that kind, of which a rank's calls may hold none. `tap` must
 * outlive the vm; its last two fields are filled. One tap serves ops that are prepared alike.
 * Before CROSS_ENTROPY also where HEAD_LOSS calls it, for some of the rows at a time. On a device
 * with memory of its own a data op's tap fills memory of the host; another's operands lie there,
 * and it may only enqueue. */
void pen_vm_hook(struct pen_vm *vm, enum pen_op_kind kind, struct pen_op_hook *tap);

/* What a command does in each rank besides running steps; null: nothing. `vm` is that of the step's
 * shape. */
struct pen_command_hooks {
  void (*opened)(const struct pen_run *run,
                 struct pen_vm *vm); /* before the seal, for every shape in turn */
  uint32_t (*choose)(
      const struct pen_run *run,
      uint64_t step); /* the shape of a step, when all ranks have ended the one before */
  bool (*stepped)(
      const struct pen_run *run,
      struct pen_vm *vm); /* after its end of a step, on its device too; false: aborted */
  void (*left)(const struct pen_run *run, struct pen_vm *vm); /* after the last */
};

#endif
