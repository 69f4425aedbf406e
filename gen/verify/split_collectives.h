/* split_collectives.h: the checks of ops of the tensor ranks of a rank, each for the op of its
 * name. */
#ifndef PEN_SPLIT_COLLECTIVES_H
#define PEN_SPLIT_COLLECTIVES_H

#include "gen/verify/split_values.h"

/* ALL_GATHER_PARTIAL, ALL_TO_ALL_PARTIAL and ALL_GATHER_SEQUENCE */
pen_split_check_op pen_check_gathered_part, pen_check_part_of_run, pen_check_gathered_runs;

pen_split_check_op pen_check_slice_sequence, pen_check_position, pen_check_embedding_select;

/* UNSHARD_SEQUENCE and SHARD_SEQUENCE */
pen_split_check_op pen_check_unshard, pen_check_shard;

#endif
