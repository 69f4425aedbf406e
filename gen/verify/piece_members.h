/* piece_members.h: the checks of ops of the members of a rank, each for the op of its name. */
#ifndef PEN_PIECE_MEMBERS_H
#define PEN_PIECE_MEMBERS_H

#include "gen/verify/piece_values.h"

/* ALL_GATHER_PART, ALL_TO_ALL_PART and ALL_GATHER_RUNS */
pen_piece_check_op pen_check_gathered_part, pen_check_part_of_run, pen_check_gathered_runs;

pen_piece_check_op pen_check_own_run, pen_check_position, pen_check_embedding_select;

#endif
