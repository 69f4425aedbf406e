/* described_pointwise.h: the ops POINTWISE of a description. */
#ifndef PEN_DESCRIBED_POINTWISE_H
#define PEN_DESCRIBED_POINTWISE_H

#include "gen/families/described_kind.h"

enum { PEN_POINTWISE_OPERANDS = 4 }; /* of a description */

/* Sets the operand of the row that each operand of the op is, before the widths of values are
 * known: a weight is a row, a value whole. Returns null, or what is wrong. */
const char *pen_pointwise_places(const struct pen_described_op *op,
                                 uint8_t place[PEN_POINTWISE_OPERANDS]);

/* Once the widths of what it reads are known: values of width 1 beside wider ones become columns.
 * Sets the row of the op's program, which is added to the table of the description. Returns null,
 * or what is wrong. */
const char *pen_pointwise_resolve(const struct pen_kind *kind, struct pen_kind_op *op);

#endif
