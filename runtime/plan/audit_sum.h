/* audit_sum.h: the checksum that memory.audit puts after each tensor that one stage passes to the
 * next, and after a tied weight that SEND_V sends: it is part of the tensor's buffer, of its
 * receive slot and of its message. */
#ifndef PEN_AUDIT_SUM_H
#define PEN_AUDIT_SUM_H

#include <stdint.h>

#include "kernels/ops.h"

/* Over the 32-bit words x[0..] of a tensor, modulo 2^64; missing bytes of the last word are 0. If
 * one word differs from what was summed, `words` has changed by d = new - old, and `weighted` by d
 * times the index: so both word and index are known. */
struct pen_audit_sum {
  uint64_t words;    /* sum of x[i] */
  uint64_t weighted; /* sum of i*x[i] */
};

/* The least bytes of a rank's audit memory: an audit of UPDATE uses it for a run of elements. */
enum { PEN_AUDIT_BYTES_LEAST = 16384 };

/* Where the checksum of a tensor is, from the tensor's start. */
static inline uint64_t pen_audit_sum_offset(uint64_t bytes) { return pen_aligned(bytes); }

/* Bytes of a tensor that a stage passes to the next, in a plan that `audits` or not. */
static inline uint64_t pen_bytes_passed(bool audits, uint64_t bytes) {
  return audits ? pen_audit_sum_offset(bytes) + PEN_ALIGNMENT_BYTES : bytes;
}
_Static_assert(sizeof(struct pen_audit_sum) <= PEN_ALIGNMENT_BYTES, "the checksum fits");

#endif
