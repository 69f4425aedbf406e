/* kept_buffers.h: the values of a stage that F or I keeps for a later program. */
#ifndef PEN_KEPT_BUFFERS_H
#define PEN_KEPT_BUFFERS_H

#include "gen/layout/internal.h"

/* Places what F keeps for I and W, and what I keeps for W. */
void pen_place_kept(struct pen_buffer_filling *f, const struct pen_buffer_split *split);

/* What a stage keeps until W, in the order in which F makes it. */
struct pen_saved *pen_saved_values_of(const struct pen_partition *partition,
                                      const struct pen_graph *graph, size_t *count);

#endif
