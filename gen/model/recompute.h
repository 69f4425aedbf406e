/* recompute.h: the forward ops as the backward programs see them: recomputed segments are copies.
 */
#ifndef PEN_RECOMPUTE_H
#define PEN_RECOMPUTE_H

#include "gen/model/graph.h"
#include "gen/model/units.h"

/* The forward ops of a stage, where those of recomputed segments and a fused loss are copies with
 * values of their own. */
struct pen_forwards {
  struct pen_op_list op;
  struct pen_segments segments; /* places in `op` */
  size_t value_count;           /* of the graph before the copies */
  uint32_t *segment_of; /* [value_count] of the op that makes a value; PEN_NONE: none of them */
  uint32_t *copy_of;    /* [value_count] what the ops of that segment use instead of a value */
};

/* The names of the copies end in `suffix`. */
struct pen_forwards pen_recompute_copy(struct pen_graph *graph, const char *suffix);
void pen_forwards_free(struct pen_forwards *forwards);

/* Removes from F the outputs of recomputed ops that only the backward needs: the gradient of a
 * loss. Call it after the copies are made. */
void pen_recompute_strip(struct pen_graph *graph, const struct pen_segments *segments);

/* Appends to `program` those ops of a segment on which `gradients`, `later` (may be null) or a
 * value that is marked in `wanted` depends, then `gradients`. `wanted` has an element a value. */
void pen_recompute_join(const struct pen_forwards *forwards, const struct pen_segment *segment,
                        const struct pen_op_list *gradients, const struct pen_op_list *later,
                        bool *wanted, struct pen_op_list *program);

/* Whether an op of I or B is one of F that it runs again. */
bool pen_op_is_recomputed(const struct pen_graph *graph, const struct pen_op *op);
/* How many of them a program has. */
uint32_t pen_recomputed_op_count(const struct pen_graph *graph, const struct pen_op_list *program);
/* Floating-point operations that I (or B) recomputes; 0 for a stage that does not recompute. */
double pen_recomputed_flops(const struct pen_graph *graph);

#endif
