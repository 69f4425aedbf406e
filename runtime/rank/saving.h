/* saving.h: what a rank saves. */
#ifndef PEN_SAVING_H
#define PEN_SAVING_H

#include <stdbool.h>

#include "runtime/rank/rank.h"
#include "runtime/rank/save.h"

/* How often AdamW has updated the tensors; between steps, when all are complete. */
struct pen_update_counts pen_rank_updates(const struct pen_rank *rank);

/* The state after the last step, between steps, for that folder, which the run has not locked;
 * `view` is filled. */
struct pen_saving pen_rank_saving(const struct pen_rank *rank, const char *directory,
                                  struct pen_arena_view *view);

#endif
