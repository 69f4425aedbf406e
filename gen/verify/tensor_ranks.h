/* tensor_ranks.h: the tensor ranks of a rank: where they have their weights, and what their ops do.
 */
#ifndef PEN_VERIFY_TENSOR_RANKS_H
#define PEN_VERIFY_TENSOR_RANKS_H

#include "gen/verify/problem.h"
#include "gen/verify/rank_context.h"

/* The tensor ranks of each rank have their weights where the first has its own, in the same space.
 * Before anything is indexed by tensor ranks. */
bool pen_check_tensor_ranks(const struct pen_plan *plan, struct pen_problem *problem);

/* Whether a tensor rank has other dims in ops of the rank than the first, or must have: those by
 * vocabulary say where its tokens begin. */
bool pen_tensor_rank_differs(const struct pen_rank_context *first, uint32_t tensor_rank);

/* The rank as another tensor rank sees it: *own becomes the first's context with the tensor rank's
 * weights and dims. False: the dims do not fit the tensors and weights, or each other. */
bool pen_tensor_rank_context(const struct pen_rank_context *first, uint32_t tensor_rank,
                             struct pen_rank_context *own);
void pen_tensor_rank_context_free(const struct pen_rank_context *own);

#endif
