/* pieces.h: weights that are split into pieces: what a stage's forward does with them. */
#ifndef PEN_VERIFY_PIECES_H
#define PEN_VERIFY_PIECES_H

#include "gen/verify/piece_table.h"
#include "gen/verify/stage_terms.h"

/* The piece whose op a term is, counted from the member's first: that of the weight that it reads,
 * or as it says itself. */
uint32_t pen_term_piece(const struct pen_stage_terms *s, uint32_t term);

/* The forward terms of a stage keep pieces apart, and sum each partial sum once, in order, before
 * it is read as a whole. Whether input and output are a run of the tokens: the stage before gives
 * one; *gives_run is set if there are pieces. */
bool pen_check_piece_terms(const struct pen_stage_terms *s, uint32_t action, bool takes_run,
                           bool *gives_run);

#endif
