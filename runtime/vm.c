/* vm.c: the loop that is the runtime: fetch a row, call its handler, say that it is done. Whatever is particular about a
 * schedule, a message or a kernel stands in the rows. */
#include "runtime/vm.h"

#include "runtime/check.h"

bool pen_vm_step(struct pen_vm *vm) {
  const struct pen_action *row = vm->program->actions, *past = row + vm->program->action_count;
  _Atomic uint64_t *finished = &vm->transport->self->finished;
  uint64_t done = vm->step * vm->program->action_count;
  bool going = true;
  for (; going && row < past; row++) {
    pen_assert(row->kind < PEN_ACTION_KINDS);
    vm->row = row;
    going = vm->handlers[row->kind](vm, row);
    atomic_store_explicit(finished, ++done, memory_order_relaxed);
  }
  vm->row = NULL;
  return going;
}

void pen_vm_call(struct pen_vm *vm, uint32_t first, uint32_t count) {
  struct pen_ready_op *op = vm->ops + first, *past = op + count;
  for (; op < past; op++) {
    for (uint32_t i = 0; i < op->operand_count; i++) {
      op->call.operand[i] = (void *)(vm->base[op->operand[i].base] + op->operand[i].offset);
    }
    op->call.workspace = (void *)(vm->base[op->workspace.base] + op->workspace.offset);
    op->run(&op->call);
  }
}
