/* derivative.h: what the gradients of a stage must be, as terms, by the gradient rules of ops.def.
 */
#ifndef PEN_DERIVATIVE_H
#define PEN_DERIVATIVE_H

#include "gen/verify/stage_terms.h"

/* What an op adds to the gradient of a weight in one microbatch. */
struct pen_gradient_part {
  uint32_t value;
  uint32_t next; /* its place in the list, plus 1; 0: it is the last */
};

/* The gradients that the ops of a stage's forward have. */
struct pen_derivative {
  const struct pen_stage_terms *stage;
  uint32_t *gradient; /* [value]: the sum so far; 0: none */
  uint32_t splits;    /* of the split weights; 1: none is */
  uint32_t *of_split; /* [value][split]: of what the ops of all splits read, likewise */
  bool *needs;        /* [value]: its gradient is needed */
  uint32_t private_value[PEN_OPERANDS_MAX];
  uint32_t lost; /* a forward op (its term + 1) whose gradient is not added to that of another user
                    of its input; 0: none */
  /* [own weight, then tie]: the parts that one microbatch adds to its gradient, in this order: the
   * first and the last place in the list, plus 1; 0: none */
  uint32_t *first, *last;
  uint32_t *users;  /* [own weight, then tie]: ops that add to it */
  bool *has_w_user; /* [own weight, then tie]: one of them is of W, where several have no order */
  struct pen_gradient_part *part;
  uint32_t part_count;
};

/* Derives the gradients of the forward ops that ran (stage->forward), from the loss or from the
 * gradient of the stage's output. */
void pen_derivative_open(struct pen_derivative *d, const struct pen_stage_terms *stage);
void pen_derivative_close(struct pen_derivative *d);

/* The gradient of the stage's input; 0: the forward does not depend on it. */
uint32_t pen_derivative_input(const struct pen_derivative *d);

/* The index of a weight of the rank, or of the head of a tied weight (weight_count + tie), in
 * `first` and `users`. */
static inline size_t pen_gradient_index(const struct pen_rank_context *context, uint32_t weight) {
  const uint32_t weights = context->plan->weight_count;
  return weight < weights ? context->own_weight_index[weight]
                          : context->own_weight_count + (size_t)(weight - weights);
}

#endif
