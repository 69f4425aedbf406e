/* vm.c: the loop that is the runtime: fetch a row, call its handler, say that it is done. Whatever
 * is particular about a schedule, a message or a kernel stands in the rows. */
#include "runtime/exec/vm.h"

#include "runtime/base/check.h"

static bool run_step(struct pen_vm *vm) {
  const struct pen_action *row = vm->program->actions, *past = row + vm->program->action_count;
  struct pen_rank_state *self = vm->transport->self;
  _Atomic uint64_t *finished = &self->finished;
  uint64_t done = atomic_load_explicit(finished, memory_order_relaxed);
  atomic_store_explicit(&self->step_began, done, memory_order_relaxed);
  atomic_store_explicit(&self->profile, (uint32_t)(vm->profile - vm->plan->profiles),
                        memory_order_relaxed);
  vm->transport->exchanged_before =
      atomic_load_explicit(&self->exchanged.count, memory_order_relaxed);
  bool going = true;
  for (; going && row < past; row++) {
    pen_assert(row->kind < PEN_ACTION_KINDS);
    vm->row = row;
    going = vm->handlers[row->kind](vm, row);
    atomic_store_explicit(finished, ++done, memory_order_relaxed);
  }
  vm->row = NULL;
  vm->profile_step++;
  return going;
}

static bool finish(struct pen_vm *vm) {
  (void)vm;
  return true;
}

const struct pen_executor pen_host_executor = {
    .step = run_step,
    .finish = finish,
    .handlers = pen_handlers,
    .handlers_traced = pen_handlers_traced,
};

void pen_vm_call(struct pen_vm *vm, uint32_t first, uint32_t count, const struct pen_frame *frame) {
  const struct pen_relocation *patch = vm->relocations + vm->first_relocation[first];
  const struct pen_relocation *past_relocation =
      vm->relocations + vm->first_relocation[first + count];
  for (; patch < past_relocation; patch++) {
    *patch->where = vm->arena + frame->base[patch->base] + patch->offset;
  }
  struct pen_bound_op *op = vm->ops + first, *past_op = op + count;
  for (; op < past_op; op++) {
    op->call.stream = vm->stream;
    op->run(&op->call);
  }
}
