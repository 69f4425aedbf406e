/* tap.c: puts a command's own function before a kind of op (see tap.h). */
#include "runtime/tap.h"

#include "runtime/check.h"

void pen_vm_tap(struct pen_vm *vm, enum pen_op_kind kind, struct pen_tap *tap) {
  for (uint32_t i = 0; i < vm->program->op_count; i++) {
    struct pen_ready_op *ready = &vm->ops[i];
    if (vm->program->ops[i].kind == kind) {
      pen_assert(tap->kernel == NULL || (tap->kernel == ready->run && tap->prepared == ready->call.prepared));
      tap->kernel = ready->run;
      tap->prepared = ready->call.prepared;
      ready->run = tap->run;
      ready->call.prepared = tap;
    }
  }
}
