/* described_kind.h: the ops of a kind of units, with their names resolved. */
#ifndef PEN_DESCRIBED_KIND_H
#define PEN_DESCRIBED_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/model/by_row.h"
#include "gen/topology/description.h"

enum pen_operand_source {
  PEN_OPERAND_ABSENT,
  PEN_OPERAND_VALUE,
  PEN_OPERAND_CONSTANT,
  PEN_OPERAND_WEIGHT,
  PEN_OPERAND_INPUT,
  PEN_OPERAND_SHARE,      /* of the targets */
  PEN_OPERAND_NAMED_SHARE /* of the list `shares` */
};

struct pen_kind_operand {
  uint8_t source;     /* enum pen_operand_source */
  uint8_t use;        /* of inputs: enum pen_input_use */
  uint32_t input;     /* and the index of the description's inputs, of which a share is that of
                         targets; of the list `shares` */
  uint32_t value;     /* of values and constants: index of the kind's values */
  const char *weight; /* its name in the unit, without the point: "ln_1.weight" */
};

struct pen_kind_op {
  const struct pen_described_row *row;
  const struct pen_described_op *from;
  struct pen_kind_operand operand[PEN_OPERANDS_MAX];
  bool of_samples;       /* what it reads has no tokens */
  bool in_f32;           /* its dtype is f32, in a bf16 model, too */
  uint32_t first_output; /* its first value; the others follow */
  uint32_t program;      /* of POINTWISE: a row of the description's programs */
  int64_t rows;          /* for each token, or sample: of an op that has the dim */
};

struct pen_kind_value {
  const char *name;
  uint32_t maker;     /* op; PEN_NONE: the unit takes it */
  uint32_t past_read; /* past the last op that reads it; 0: none does */
  uint64_t width;     /* elements for each token, or sample; of a constant for each position */
  bool of_samples;    /* it has no tokens, but is of each sample */
};

/* A name of an op that equals an earlier one: of the value that the earlier one makes. */
struct pen_kind_alias {
  const char *name;
  const struct pen_described_op *from;
  uint32_t value;
  bool is_read;
};

struct pen_kind {
  const struct pen_description *description;
  const struct pen_described_kind *from;
  struct pen_kind_op *op;
  uint32_t op_count;
  struct pen_kind_value *value;
  uint32_t value_count;
  struct pen_kind_alias *alias;
  uint32_t alias_count;
  uint32_t takes, gives; /* values; PEN_NONE: nothing */
  uint32_t first_loss;   /* op; PEN_NONE: the kind has no loss */
  uint32_t head; /* the product that the ops after it make the logits and the loss of; PEN_NONE: the
                    kind has no loss, or losses with shares of their own */
  uint32_t product, logits; /* ops: of the logits that texts have, the product and what makes them
                               of it; PEN_NONE: the kind makes none */
  bool *needed;             /* [op]: the logits depend on it; null: they depend on all before */
};

/* Fails (78), with the file, the unit, the op and its line, unless each op has a row, each name is
 * known, each operand is of the class that the row needs, and each value is read. Of equal ops the
 * kind has the first. */
struct pen_kind *pen_described_kind(const struct pen_description *description,
                                    const struct pen_described_kind *from);

#endif
