/* described_operands.h: what the ops of a block of a description read: weights, tables, inputs of
 * the step, values. */
#ifndef PEN_DESCRIBED_OPERANDS_H
#define PEN_DESCRIBED_OPERANDS_H

#include "gen/families/described_ops.h"
#include "gen/model/graph.h"

/* A block while its ops are appended. */
struct pen_block_ops {
  struct pen_graph *graph;
  const struct pen_kind_block *block;
  const char *prefix; /* of the names of its weights */
  uint32_t *value;    /* [value of the kind]: of the graph */
  uint32_t
      *other;    /* [value of the kind]: the same in the other dtype; PEN_NONE: none reads it so */
  uint32_t loss; /* the sum of the losses so far; PEN_NONE: there is none */
};

/* Sizes of the step: to an op of samples they are sequences of one token. */
struct pen_step_sizes pen_step_sizes_of(const struct pen_graph *graph, bool of_samples);

/* Operand k of an op; PEN_NONE: it is absent. A weight is added at its first use, a table computed
 * once. */
uint32_t pen_input_value(struct pen_block_ops *e, const struct pen_kind_op *op, int k);

/* A weight, as operand k of an op reads it. */
uint32_t pen_weight_value(struct pen_block_ops *e, const struct pen_kind_op *op, int k);

/* A value of the kind in a dtype, which an op may have to convert it to. */
uint32_t pen_value_as(struct pen_block_ops *e, uint32_t value, uint8_t dtype);

/* Whether all tokens have one row of a table of positions, wherever documents start. */
bool pen_has_one_row(const struct pen_kind_op *op);

#endif
