/* pointwise.h: the table of a plan's programs of POINTWISE. */
#ifndef PEN_POINTWISE_H
#define PEN_POINTWISE_H

#include "gen/model/pointwise_steps.h"
#include "runtime/plan/plan.h"

struct pen_described_kind; /* gen/topology/description.h */
struct pen_described_op;

/* Where a description has a program first. */
struct pen_pointwise_place {
  const struct pen_described_kind *kind;
  const struct pen_described_op *op;
};

/* The programs of a plan. */
struct pen_pointwise_table {
  struct pen_pointwise *row;
  struct pen_pointwise_place *place;
  uint32_t count;
};

/* The row of a program, and those of the gradients of its operands, which are added unless they are
 * there: equal programs have one row. Returns null, or why it has none: a gradient that is too
 * long. */
const char *pen_pointwise_add(struct pen_pointwise_table *table,
                              const struct pen_steps_list *program, uint32_t *row);

#endif
