/* columns.h: the columns of the logits that a tensor rank computes, a part of them for each of its
 * splits of the vocabulary: operand and dims of CROSS_ENTROPY_COLUMNS. */
#ifndef PEN_COLUMNS_H
#define PEN_COLUMNS_H

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

#endif
