/* call.c: calls the ops of a program. */
#include "runtime/exec/exec.h"

void pen_vm_relocate(struct pen_vm *vm, uint32_t first, uint32_t count,
                     const struct pen_frame *frame) {
  vm->frame = frame;
  const struct pen_relocation *relocation = vm->relocations + vm->first_relocation[first];
  const struct pen_relocation *past_relocation =
      vm->relocations + vm->first_relocation[first + count];
  for (; relocation < past_relocation; relocation++) {
    *relocation->where = vm->arena + frame->base[relocation->base] + relocation->offset;
  }
}

void pen_vm_call(struct pen_vm *vm, uint32_t first, uint32_t count, const struct pen_frame *frame) {
  pen_vm_relocate(vm, first, count, frame);
  struct pen_bound_op *op = vm->ops + first, *past_op = op + count;
  for (; op < past_op; op++) {
    op->run(&op->call);
  }
}

static void set_stream(struct pen_vm *vm, uint32_t first, uint32_t count, void *stream) {
  for (uint32_t i = first; i < first + count; i++) {
    vm->ops[i].call.stream = stream;
  }
}

void pen_vm_call_on(struct pen_vm *vm, uint32_t first, uint32_t count,
                    const struct pen_frame *frame, void *stream) {
  set_stream(vm, first, count, stream);
  pen_vm_call(vm, first, count, frame);
  set_stream(vm, first, count, vm->streams.compute);
}
