/* recompute.h: memory.recompute: a stage keeps its input alone, and runs F again when its backward
 * needs what F made. */
#ifndef PEN_RECOMPUTE_H
#define PEN_RECOMPUTE_H

#include "gen/model/graph.h"

/* The forward ops once more, with values of their own for all that they make, named with the
 * suffix. */
struct pen_recomputed {
  struct pen_op_list op;
  uint32_t output;   /* the copy of the stage's output, or PEN_NONE */
  uint32_t *copy_of; /* [copied]: the copy of a value, or itself; null: all are themselves */
  size_t copied;
};

static inline uint32_t pen_recomputed_of(const struct pen_recomputed *again, uint32_t value) {
  return again->copy_of && value < again->copied ? again->copy_of[value] : value;
}

struct pen_recomputed pen_recompute_copy(struct pen_graph *graph, const char *suffix);

/* Leaves to F what only F does: what its ops make for the backward alone goes (a loss's gradient).
 * Once the copies are made. */
void pen_recompute_strip(struct pen_graph *graph);

/* Puts before `program` the copied ops whose results it, or `later` (may be null), reads, directly
 * or through each other. Returns how many. */
uint32_t pen_recompute_prepend(struct pen_graph *graph, const struct pen_recomputed *again,
                               struct pen_op_list *program, const struct pen_op_list *later);

/* Floating-point operations of the ops that I (or B) of a recomputing stage runs again; 0 for any
 * other stage. */
double pen_recomputed_flops(const struct pen_graph *graph);

#endif
