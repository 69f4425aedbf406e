/* columns.h: the columns of the logits that a tensor rank computes, a part of them for each of its
 * splits of the vocabulary: operand and dims of CROSS_ENTROPY_COLUMNS. */
#ifndef PEN_COLUMNS_H
#define PEN_COLUMNS_H

#include "runtime/data/bucket.h"
#include "runtime/exec/exec.h"

/* [rows of a step][count], of the model's dtype. */
struct pen_columns {
  unsigned char *logits;
  size_t count, first;
};

struct pen_columns pen_columns_of(const struct pen_call *call);

/* On a device: in pinned memory. */
struct pen_pinned_columns {
  struct pen_columns *split; /* [count] */
  uint32_t count;
};

/* Allocates the list, before the seal. */
void pen_columns_open(struct pen_pinned_columns *pinned, const struct pen_plan *plan);

/* Copies the columns of a call there, on its stream. Memory is allocated in the first run of the
 * program, before the seal. */
void pen_columns_fetch(struct pen_pinned_columns *pinned, const struct pen_vm *vm,
                       const struct pen_call *call);

/* The logits of a step's rows, whole: where tensor ranks put their columns, by odd and even steps.
 */
struct pen_joined_columns {
  float *logits; /* [2][rows][vocab], which they share; null without splits */
  size_t rows, vocab;
};

/* Before the tensor ranks exist. Allocates. */
void pen_joined_columns_open(struct pen_joined_columns *joined, const struct pen_plan *plan,
                             const struct pen_buckets *buckets);

static inline float *pen_joined_columns_row(const struct pen_joined_columns *joined, uint64_t step,
                                            uint32_t row) {
  return joined->logits + ((step & 1) * joined->rows + row) * joined->vocab;
}

#endif
