/* route_guard.c: looks at routes before they are indices of memory (see route_guard.h): one that
 * was damaged would be written by. */
#include "runtime/exec/route_guard.h"

#include "runtime/base/check.h"

/* Where an op has routes: its operand, and the dims that count them. */
static const struct routes {
  uint8_t operand, rows, choices, experts;
} routes_of[PEN_OP_COUNT] = {
    [PEN_OP_ROUTE_DX] = {2, 0, 2, 1},      [PEN_OP_DISPATCH] = {1, 0, 3, 6},
    [PEN_OP_EXPERTS] = {1, 0, 2, 5},       [PEN_OP_EXPERTS_DX] = {2, 0, 2, 5},
    [PEN_OP_SUM_CHOICES] = {1, 0, 3, 6},   [PEN_OP_ROUTER_LOSS] = {1, 0, 2, 1},
    [PEN_OP_COUNT_CHOICES] = {0, 0, 2, 1}, [PEN_OP_ADD_CHOICES] = {0, 0, 2, 1},
};

struct guard {
  const struct pen_vm *vm;
  const char *name; /* of the routes: that of their layer */
  struct routes at;
  pen_kernel *kernel;
  void *prepared;
};

bool pen_routes_are_valid(const int32_t *expert, size_t rows, size_t choices, size_t experts) {
  int32_t wrong = 0;
  for (size_t r = 0; r < rows; r++, expert += choices) {
    wrong |= expert[0] < 0 || expert[choices - 1] >= (int32_t)experts;
    for (size_t c = 1; c < choices; c++) {
      wrong |= expert[c] <= expert[c - 1];
    }
  }
  return !wrong;
}

static void run_guarded(const struct pen_call *call) {
  const struct guard *guard = call->prepared;
  struct pen_call own = *call;
  own.prepared = guard->prepared;
  if (!pen_routes_are_valid(call->operand[guard->at.operand], (size_t)call->dim[guard->at.rows],
                            (size_t)call->dim[guard->at.choices],
                            (size_t)call->dim[guard->at.experts])) {
    pen_fail(
        PEN_EXIT_INTERNAL,
        "rank %u: %s of microbatch %llu: its routes are not %lld numbers of experts, rising and "
        "below %lld: they were damaged",
        guard->vm->rank, guard->name, (unsigned long long)guard->vm->data.microbatch_index,
        (long long)call->dim[guard->at.choices], (long long)call->dim[guard->at.experts]);
  }
  guard->kernel(&own);
}

void pen_guard_routes(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound) {
  const struct routes at = routes_of[op->kind];
  if (at.choices == 0 || vm->device->asynchronous) {
    return;
  }
  struct guard *guard = pen_allocate(1, sizeof *guard, "the routes of a layer");
  *guard = (struct guard){.vm = vm,
                          .name = vm->program->tensors[op->operand[at.operand]].name,
                          .at = at,
                          .kernel = bound->run,
                          .prepared = bound->call.prepared};
  bound->run = run_guarded;
  bound->call.prepared = guard;
}
