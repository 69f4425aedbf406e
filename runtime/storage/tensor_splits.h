/* tensor_splits.h: the tensors of files and the weights that are splits of them (plan.h, Splits).
 */
#ifndef PEN_TENSOR_SPLITS_H
#define PEN_TENSOR_SPLITS_H

#include <stdbool.h>

#include "runtime/plan/plan.h"

/* Consecutive elements of a weight that are consecutive in its tensor, too, or in one of its
 * tensors: `tensor_element` counts from the start of the first. */
struct pen_tensor_run {
  uint64_t element, tensor_element, count;
};

/* The first of these in elements [first, first + count) of a weight; count above 0. */
struct pen_tensor_run pen_first_run(const struct pen_weight *weight, uint64_t first,
                                    uint64_t count);

/* Whether a tensor of the plan is divided into splits. */
bool pen_has_splits(const struct pen_plan *plan);

/* tensor_parallel.splits: the splits of each tensor that is split, and so of the vocabulary, of
 * which each but the last has the most tokens. 1: none is split. */
uint32_t pen_splits_of(const struct pen_plan *plan);

/* The first of the tokens whose logits a tensor rank computes; past the last rank: the vocab. */
uint32_t pen_first_token(const struct pen_plan *plan, uint32_t tensor_rank);

/* The last tensor that was read for its splits. All 0: none. */
struct pen_whole_tensor {
  const char *name; /* of the tensor */
  float *values;
};

/* Where the tensor of a weight is read to: `to`, if the weight is the tensor; else memory of
 * `whole`, until the next call. *known: it has that tensor already. Fails (PEN_EXIT_SYSTEM). */
float *pen_tensor_destination(struct pen_whole_tensor *whole, const struct pen_weight *weight,
                              float *to, bool *known);
/* Copies the weight's elements to `to`, if it is a split. */
void pen_tensor_read(const struct pen_whole_tensor *whole, const struct pen_weight *weight,
                     float *to);
void pen_whole_tensor_free(struct pen_whole_tensor *whole);

#endif
