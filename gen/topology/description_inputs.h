/* description_inputs.h: the inputs of a description. */
#ifndef PEN_DESCRIPTION_INPUTS_H
#define PEN_DESCRIPTION_INPUTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "gen/topology/description.h"

/* The word of "from", which is also the operand of ops.def that reads it. */
const char *pen_described_source_text(enum pen_described_source source);

/* The bytes of names of values besides letters and digits. */
#define PEN_DESCRIBED_NAME_BYTES "_.-"

/* Reads the list `inputs`, after `sequence`. Ends the generator (78) with the place and what is
 * allowed. */
void pen_description_read_inputs(struct pen_description *description, const json_t *list);

/* Which extent of a shape is the first for each token: 2, after batch and sequence; of a
 * description for sequences of one token also 1, after batch; 0: the shape begins otherwise. */
size_t pen_description_tokens(const struct pen_description *description, const json_t *shape);

#endif
