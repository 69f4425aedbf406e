/* columns.c: see columns.h. */
#include "runtime/commands/columns.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/storage/tensor_splits.h"

enum { LOGITS = 0, ROWS = 0, COLUMNS = 1, FIRST_COLUMN = 2 };

struct pen_columns pen_columns_of(const struct pen_call *call) {
  return (struct pen_columns){.logits = call->operand[LOGITS],
                              .count = (size_t)call->dim[COLUMNS],
                              .first = (size_t)call->dim[FIRST_COLUMN]};
}

void pen_columns_open(struct pen_pinned_columns *pinned, const struct pen_plan *plan) {
  *pinned = (struct pen_pinned_columns){
      .split = pen_allocate(pen_splits_of(plan), sizeof *pinned->split, "the columns of logits")};
}

void pen_columns_fetch(struct pen_pinned_columns *pinned, const struct pen_vm *vm,
                       const struct pen_call *call) {
  const struct pen_columns there = pen_columns_of(call);
  const size_t bytes = (size_t)call->dim[ROWS] * there.count * pen_dtype_bytes(vm->plan->dtype);
  uint32_t p = 0;
  while (p < pinned->count && pinned->split[p].first != there.first) {
    p++;
  }
  if (p == pinned->count) {
    pen_assert(p < pen_splits_of(vm->plan));
    pinned->count++;
    pinned->split[p] = there;
    pinned->split[p].logits = vm->device->allocate_host(bytes);
    pen_check(pinned->split[p].logits != NULL,
              "no pinned memory for the logits of %" PRId64 " tokens", call->dim[ROWS]);
  }
  vm->device->copy_out(pinned->split[p].logits, there.logits, bytes, call->stream);
}
