/* columns.c: see columns.h. */
#include "runtime/commands/columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

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

void pen_joined_columns_open(struct pen_joined_columns *joined, const struct pen_plan *plan,
                             const struct pen_buckets *buckets) {
  *joined = (struct pen_joined_columns){.rows = 1, .vocab = plan->vocab};
  for (uint32_t b = 0; b < buckets->count; b++) {
    const uint32_t slots = buckets->profile[b]->slots;
    joined->rows = slots > joined->rows ? slots : joined->rows;
  }
  if (pen_has_splits(plan)) {
    const size_t bytes = 2 * joined->rows * joined->vocab * sizeof *joined->logits;
    joined->logits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pen_check(joined->logits != MAP_FAILED, "no memory for the logits of %zu tokens", joined->rows);
  }
}
