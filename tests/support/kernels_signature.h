/* kernels_signature.h: what a signature of ops.def states of an op's operands, for tests of all
 * ops. */
#ifndef PEN_KERNELS_SIGNATURE_H
#define PEN_KERNELS_SIGNATURE_H

#include "tests/support/kernels_support.h"
#include "tests/support/op_cases.h"

struct operand {
  char name[16], shares[16]; /* shares: the input that this output may replace */
  size_t count, element_bytes;
  int output, accumulates, optional, integer, of_op, partial; /* of_op: ":t" or ":s" */
};

struct signature {
  struct operand operand[PEN_OPERANDS_MAX];
  size_t count;
};

struct signature parse_signature_as(enum pen_dtype dtype, enum pen_op_kind kind,
                                    const int64_t *dim);

struct signature parse_signature(enum pen_op_kind kind, const int64_t *dim);

size_t find_operand(const struct signature *s, const char *name);

size_t operand_bytes(const struct operand *o);

/* The sequence length of an op that takes starts of documents. */
size_t starts_sequence(enum pen_op_kind kind, const int64_t *dim);

/* One document in the first sequence, two in the second, and so on. */
void fill_starts(int32_t *starts, size_t count, size_t sequence);

/* Real numbers for an operand of any width. */
void spread_operand(void *to, const struct operand *o, uint64_t seed);

/* Fills all operands of a call at `shift` cache lines after a page; the values do not depend on the
 * shift. */
struct pen_call fill_call(const struct op_case *of, const struct signature *s, size_t shift);

void assert_same_outputs(enum pen_op_kind kind, const struct signature *s, const struct pen_call *a,
                         const struct pen_call *b);

#endif
