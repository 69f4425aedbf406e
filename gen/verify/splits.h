/* splits.h: weights that are divided into splits: what a stage's forward does with them. */
#ifndef PEN_VERIFY_SPLITS_H
#define PEN_VERIFY_SPLITS_H

#include "gen/verify/split_table.h"
#include "gen/verify/stage_terms.h"

/* The split whose op a forward term is, counted from the tensor rank's first: of a weight that it
 * reads, or of a value; PEN_NONE: of none. */
uint32_t pen_term_split(const struct pen_stage_terms *s, uint32_t term);

/* Whether the ops of all splits, of which this is one, read input k: it is whole. */
bool pen_term_shares(const struct pen_stage_terms *s, uint32_t term, int k);

/* The forward terms of a stage keep splits apart, and sum each partial sum once, in order, before
 * it is read as a whole. Whether input and output are a run of the tokens: the stage before gives
 * one; *gives_run is set if there are splits. */
bool pen_check_split_terms(struct pen_stage_terms *s, uint32_t action, bool takes_run,
                           bool *gives_run);

#endif
