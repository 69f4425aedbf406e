/* split_logits.h: the checks of ops on logits of splits, each for the op of its name. */
#ifndef PEN_SPLIT_LOGITS_H
#define PEN_SPLIT_LOGITS_H

#include "gen/verify/split_values.h"

pen_split_check_op pen_check_logits_maximum, pen_check_logits_sum, pen_check_loss_columns,
    pen_check_logits_join, pen_check_head_maximum, pen_check_head_sum, pen_check_head_loss;

/* MAXIMUM: over the tensor ranks. */
pen_split_check_op pen_check_maximum;

#endif
