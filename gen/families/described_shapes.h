/* described_shapes.h: the shapes of the ops of a kind of units. */
#ifndef PEN_DESCRIBED_SHAPES_H
#define PEN_DESCRIBED_SHAPES_H

#include <stdbool.h>

#include "gen/families/described_kind.h"

/* Fails (78) unless the weights of the unit with that prefix and the values have shapes that match
 * the rows. Sets the widths of values, which are the same in each unit of a kind. */
void pen_kind_match_unit(struct pen_kind *kind, const char *prefix, bool is_first);

#endif
