/* tensor_sum.h: the checksum of a tensor (runtime/plan/audit_sum.h). */
#ifndef PEN_TENSOR_SUM_H
#define PEN_TENSOR_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/audit_sum.h"

struct pen_audit_sum pen_tensor_sum(const void *tensor, size_t bytes);

static inline bool pen_sums_equal(struct pen_audit_sum a, struct pen_audit_sum b) {
  return a.words == b.words && a.weighted == b.weighted;
}

/* If what was summed as `before` can have become `after` by the change of one 32-bit word: true,
 * with the index of the word and what it was before. `tensor` is what `after` was made of. */
bool pen_tensor_sum_locate(struct pen_audit_sum before, struct pen_audit_sum after,
                           const void *tensor, size_t bytes, uint64_t *word, uint32_t *was);

#endif
