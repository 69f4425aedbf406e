/* pieces.h: weights that are split into pieces: the table, and what a stage's forward does with
 * them. */
#ifndef PEN_VERIFY_PIECES_H
#define PEN_VERIFY_PIECES_H

#include "gen/verify/problem.h"
#include "gen/verify/stage_terms.h"

/* Into how many pieces the split weights of a plan are split; 1: none is. */
uint32_t pen_piece_count(const struct pen_plan *plan);

/* The pieces of each tensor are in the table once, in their order, and hold each of its elements
 * once. */
bool pen_check_piece_table(const struct pen_plan *plan, struct pen_problem *problem);

/* The piece whose op a term is, counted from the member's first: that of the weight that it reads,
 * or as it says itself. */
uint32_t pen_term_piece(const struct pen_stage_terms *s, uint32_t term);

/* The forward terms of a stage keep pieces apart, and sum each partial sum once, in order, before
 * it is read as a whole. */
bool pen_check_piece_terms(const struct pen_stage_terms *s, uint32_t action);

#endif
