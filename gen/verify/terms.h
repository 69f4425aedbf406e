/* terms.h: values as terms: an op applied to other values, or what a stage is given. Each term is
 * stored once, so two values are equal exactly if they have one number. */
#ifndef PEN_TERMS_H
#define PEN_TERMS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

/* Kinds of terms: those of ops, and what a stage is given. */
enum {
  PEN_TERM_WEIGHT = PEN_OP_COUNT, /* dim[0]: index into the plan's weights; dtype as it is read */
  PEN_TERM_INPUT,                 /* of the stage */
  PEN_TERM_OUTPUT_GRADIENT        /* of the stage */
};

/* Two terms are compared byte by byte: there is no padding, and what a kind does not use is 0. */
struct pen_term {
  double real[PEN_REALS_MAX];
  int64_t dim[PEN_DIMS_MAX];
  uint32_t input[PEN_OPERANDS_MAX]; /* values; 0: absent. At the places of the op's operands */
  uint32_t kind, dtype;
};
_Static_assert(sizeof(struct pen_term) ==
                   8 * PEN_REALS_MAX + 8 * PEN_DIMS_MAX + 4 * PEN_OPERANDS_MAX + 8,
               "no padding");

struct pen_terms {
  struct pen_term *term;
  size_t count, capacity;
  uint32_t *slot; /* hash table: index + 1; 0: free */
  size_t slots;
};

/* The index of a term, which is stored if it is new. */
uint32_t pen_term_add(struct pen_terms *terms, const struct pen_term *term);
void pen_terms_clear(struct pen_terms *terms); /* keeps the memory */
void pen_terms_free(struct pen_terms *terms);

/* The value that operand k of a term makes. Values are numbered from 1. */
static inline uint32_t pen_term_output(uint32_t term, int k) {
  return term * PEN_OPERANDS_MAX + (uint32_t)k + 1;
}
static inline uint32_t pen_term_of_value(uint32_t value) { return (value - 1) / PEN_OPERANDS_MAX; }
static inline int pen_operand_of_value(uint32_t value) {
  return (int)((value - 1) % PEN_OPERANDS_MAX);
}
/* Values are below this. */
static inline size_t pen_terms_past_value(const struct pen_terms *terms) {
  return terms->count * PEN_OPERANDS_MAX + 1;
}

#endif
