/* damage_routes.c: damages a route after ROUTE has made it. It is linked into a binary with
 * -Wl,--wrap=pen_guard_routes. DAMAGE is "RANK TENSOR MICROBATCH ELEMENT STEP BIT": in that step of
 * the run, from 1 on, the bit is flipped; STEP 0: in each step the element becomes BIT, by a copy
 * on the stream, so that a graph has it, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/exec/route_guard.h"

void __real_pen_guard_routes(struct pen_vm *vm, const struct pen_op *op,
                             struct pen_bound_op *bound);
void __wrap_pen_guard_routes(struct pen_vm *vm, const struct pen_op *op,
                             struct pen_bound_op *bound);

enum { EXPERT = 2 }; /* the operand of ROUTE */

static struct {
  const struct pen_vm *vm;
  pen_kernel *kernel;
  unsigned rank, microbatch, element, step;
  int32_t bit;
  char tensor[64];
} damage;

static void run_damaged(const struct pen_call *call) {
  const struct pen_vm *vm = damage.vm;
  int32_t *expert = (int32_t *)call->operand[EXPERT] + damage.element;
  damage.kernel(call);
  if (vm->data.microbatch_index == damage.microbatch && damage.step == 0) {
    vm->device->copy_in(expert, &damage.bit, sizeof damage.bit, call->stream);
  } else if (vm->data.microbatch_index == damage.microbatch && vm->run_step + 1 == damage.step) {
    *expert ^= (int32_t)(1u << damage.bit);
  }
}

void __wrap_pen_guard_routes(struct pen_vm *vm, const struct pen_op *op,
                             struct pen_bound_op *bound) {
  const char *text = getenv("DAMAGE");
  __real_pen_guard_routes(vm, op, bound);
  if (text == NULL || op->kind != PEN_OP_ROUTE) return;
  pen_check(sscanf(text, "%u %63s %u %u %u %d", &damage.rank, damage.tensor, &damage.microbatch,
                   &damage.element, &damage.step, &damage.bit) == 6,
            "DAMAGE");
  if (vm->rank == damage.rank && vm->profile->kind == PEN_TRAIN &&
      strcmp(vm->program->tensors[op->operand[EXPERT]].name, damage.tensor) == 0) {
    damage.vm = vm;
    damage.kernel = bound->run;
    bound->run = run_damaged;
  }
}
