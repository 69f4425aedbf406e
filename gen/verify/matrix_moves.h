/* matrix_moves.h: the exchanges of UPDATE. */
#ifndef PEN_VERIFY_MATRIX_MOVES_H
#define PEN_VERIFY_MATRIX_MOVES_H

#include "gen/verify/collective_rows.h"

/* Whether they bring each matrix that tensor ranks share to an owner, and back. */
bool pen_check_matrix_moves(struct pen_moves *m);

#endif
