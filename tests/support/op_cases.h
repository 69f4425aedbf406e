/* op_cases.h: the cases of the tests of all ops. */
#ifndef PEN_OP_CASES_H
#define PEN_OP_CASES_H

#include "kernels/kernels.h"

/* The tests that a case is of, a sum. */
enum {
  FOR_CONTRACT = 1, /* tests/kernels/contract.c */
  FOR_THREADS = 2,  /* tests/kernels/threads.c: threads divide it, and most do not divide evenly */
  FOR_ROWS = 4,     /* tests/kernels/rows.c: the first dim counts its rows, or its elements */
  FOR_CUDA = 8,     /* tests/gpu/kernels.c */
  LARGE = 16        /* of FOR_CUDA, and too slow in the emulation */
};

/* Of FOR_ROWS: more rows than two tiles of products have; more steps than two of their blocks. */
enum { ROW_COUNT = 53, DEPTH = 2 * PEN_PRODUCT_DEPTH + 11 };

struct op_case {
  enum pen_op_kind kind;
  int64_t dim[PEN_DIMS_MAX];
  double real[PEN_REALS_MAX];
  int integers; /* integer operands get values below this, and -100 here and there for targets */
  double tolerance, floor; /* of FOR_CUDA; 0: the same bits */
  unsigned tests;
};

/* The program of a case of POINTWISE or POINTWISE_DX, whose dims have its number; of others none.
 * Those for all tests read all operands: program 0 of POINTWISE, 1 of POINTWISE_DX. */
struct pen_steps op_case_steps(enum pen_op_kind kind, const int64_t *dim);

extern const struct op_case op_cases[];
extern const size_t op_case_count;

/* Has an op a case of one of the tests? */
bool op_has_case(enum pen_op_kind kind, unsigned tests);

#endif
