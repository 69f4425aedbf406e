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
  const struct pen_op *op;
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

static _Noreturn void fail(const struct pen_vm *vm, const struct pen_op *op, uint64_t microbatch) {
  const struct routes at = routes_of[op->kind];
  pen_fail(PEN_EXIT_INTERNAL,
           "rank %u: %s of microbatch %llu: its routes are not %lld numbers of experts, rising and "
           "below %lld: they were damaged",
           vm->rank, vm->program->tensors[op->operand[at.operand]].name,
           (unsigned long long)microbatch, (long long)op->dim[at.choices],
           (long long)op->dim[at.experts]);
}

static void run_guarded(const struct pen_call *call) {
  const struct guard *guard = call->prepared;
  const struct routes at = routes_of[guard->op->kind];
  struct pen_call own = *call;
  own.prepared = guard->prepared;
  if (!pen_routes_are_valid(call->operand[at.operand], (size_t)call->dim[at.rows],
                            (size_t)call->dim[at.choices], (size_t)call->dim[at.experts])) {
    fail(guard->vm, guard->op, guard->vm->data.microbatch_index);
  }
  guard->kernel(&own);
}

/* What the device notes: the op, from 1 on, above the microbatch. */
static void run_noted(const struct pen_call *call) {
  const struct guard *guard = call->prepared;
  const struct pen_vm *vm = guard->vm;
  const struct routes at = routes_of[guard->op->kind];
  struct pen_call own = *call;
  own.prepared = guard->prepared;
  const uint64_t op = (uint64_t)(guard->op - vm->program->ops) + 1;
  vm->device->check_routes(vm->executor->damage(vm), op << 32 | (uint32_t)vm->data.microbatch_index,
                           call->operand[at.operand], call->dim[at.rows], call->dim[at.choices],
                           call->dim[at.experts], call->stream);
  guard->kernel(&own);
}

void pen_fail_of_routes(const struct pen_vm *vm) {
  const uint64_t *word = vm->executor->damage(vm);
  const uint64_t noted = word == NULL ? 0 : __atomic_load_n(word, __ATOMIC_ACQUIRE);
  if (noted != 0) {
    fail(vm, &vm->program->ops[(noted >> 32) - 1], noted & UINT32_MAX);
  }
}

/* Each of a layer's F and backward runs one of these. */
static bool is_noted(const struct pen_op *op) {
  enum { SLICE = 4 }; /* a dim */
  return (op->kind == PEN_OP_EXPERTS || op->kind == PEN_OP_EXPERTS_DX) && op->dim[SLICE] == 0;
}

void pen_guard_routes(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound) {
  const bool notes = vm->device->asynchronous;
  if (routes_of[op->kind].choices == 0 || (notes && !is_noted(op))) {
    return;
  }
  struct guard *guard = pen_allocate(1, sizeof *guard, "the routes of a layer");
  *guard =
      (struct guard){.vm = vm, .op = op, .kernel = bound->run, .prepared = bound->call.prepared};
  bound->run = notes ? run_noted : run_guarded;
  bound->call.prepared = guard;
}
