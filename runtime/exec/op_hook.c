/* tap.c: puts a command's own function before a kind of op (see tap.h). */
#include "kernels/kernels.h"
#include "runtime/exec/op_hook.h"

#include "runtime/base/check.h"
#include "runtime/device/stream_executor.h"

/* Takes the place of what stands there; of a feed that several ops have, once. */
static void take_place(struct pen_op_hook *tap, pen_kernel **run, void **prepared) {
  if (*run == tap->run && *prepared == tap) {
    return;
  }
  pen_assert(tap->kernel == NULL || (tap->kernel == *run && tap->prepared == *prepared));
  tap->kernel = *run;
  tap->prepared = *prepared;
  *run = tap->run;
  *prepared = tap;
}

void pen_vm_hook(struct pen_vm *vm, enum pen_op_kind kind, struct pen_op_hook *tap) {
  for (uint32_t i = 0; i < vm->program->op_count; i++) {
    const struct pen_op *op = &vm->program->ops[i];
    struct pen_bound_op *ready = &vm->ops[i];
    if (op->kind == kind && vm->queue != NULL && pen_data_op(kind, op->dtype) != NULL) {
      struct pen_bound_input *feed = pen_staging_kernel(vm, op);
      take_place(tap, &feed->run, &feed->prepared);
    } else if (op->kind == kind) {
      take_place(tap, &ready->run, &ready->call.prepared);
    } else if (op->kind == PEN_OP_HEAD_LOSS && kind == PEN_OP_CROSS_ENTROPY) {
      pen_head_loss_replace(ready->call.prepared, tap->run, tap, &tap->kernel, &tap->prepared);
    }
  }
}
