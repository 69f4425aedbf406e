/* recompute.h: memory.recompute: a stage keeps only its input, and its backward recomputes F. */
#ifndef PEN_RECOMPUTE_H
#define PEN_RECOMPUTE_H

#include "gen/model/graph.h"

/* Copies of the forward ops, with new values for their outputs, named with the suffix. */
struct pen_recomputed {
  struct pen_op_list op;
  uint32_t output;   /* the copy of the stage's output, or PEN_NONE */
  uint32_t *copy_of; /* [copied]: the copy of a value, or the value itself; null: no copies */
  size_t copied;
};

static inline uint32_t pen_recomputed_of(const struct pen_recomputed *copies, uint32_t value) {
  return copies->copy_of && value < copies->copied ? copies->copy_of[value] : value;
}

struct pen_recomputed pen_recompute_copy(struct pen_graph *graph, const char *suffix);

/* Removes from F the outputs that only the backward needs (the gradient of a loss). Call it after
 * the copies are made. */
void pen_recompute_strip(struct pen_graph *graph);

/* Inserts at the start of `program` the copied ops on which it or `later` (may be null) depends.
 * Returns their number. */
uint32_t pen_recompute_prepend(struct pen_graph *graph, const struct pen_recomputed *copies,
                               struct pen_op_list *program, const struct pen_op_list *later);

/* Floating-point operations that I (or B) recomputes; 0 for a stage that does not recompute. */
double pen_recomputed_flops(const struct pen_graph *graph);

#endif
