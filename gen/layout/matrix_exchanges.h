/* matrix_exchanges.h: the exchanges of UPDATE between tensor ranks. */
#ifndef PEN_LAYOUT_MATRIX_EXCHANGES_H
#define PEN_LAYOUT_MATRIX_EXCHANGES_H

#include "gen/layout/collectives.h"

/* Adds those of a rank to its collectives: how many (exchange_count of struct pen_rank_program). */
uint32_t pen_add_matrix_exchanges(struct pen_collective_rows *rows);

#endif
