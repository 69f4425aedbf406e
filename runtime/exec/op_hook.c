/* op_hook.c: replaces the kernels of a kind of op by a command's function (see op_hook.h). */
#include "runtime/exec/op_hook.h"

#include "kernels/kernels.h"
#include "runtime/base/check.h"

/* Replaces a kernel, once where several ops share it. */
static void replace_kernel(struct pen_op_hook *hook, pen_kernel **run, void **prepared) {
  if (*run == hook->run && *prepared == hook) {
    return;
  }
  pen_assert(hook->kernel == NULL || (hook->kernel == *run && hook->prepared == *prepared));
  hook->kernel = *run;
  hook->prepared = *prepared;
  *run = hook->run;
  *prepared = hook;
}

void pen_vm_hook(struct pen_vm *vm, enum pen_op_kind kind, struct pen_op_hook *hook) {
  for (uint32_t i = 0; i < vm->program->op_count; i++) {
    const struct pen_op *op = &vm->program->ops[i];
    struct pen_bound_op *bound = &vm->ops[i];
    struct pen_bound_input *input = op->kind == kind ? vm->executor->input(vm, op) : NULL;
    if (input != NULL) {
      replace_kernel(hook, &input->run, &input->prepared);
    } else if (op->kind == kind) {
      replace_kernel(hook, &bound->run, &bound->call.prepared);
    } else if (pen_head_loss_calls(op->kind) == kind) {
      pen_head_loss_replace(bound->call.prepared, hook->run, hook, &hook->kernel, &hook->prepared);
    }
  }
}
