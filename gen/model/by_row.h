/* by_row.h: ops that a description names: their dims by the shapes of what they read, and how they
 * are appended (PEN_DESCRIBED of kernels/ops.def, and described.def).
 *
 * An op has a row of kernels/ops.def, which gives each operand's extents as dims of the op. The
 * shapes of weights are known, and so are the elements of values; a dim follows where it is the
 * only unknown one of an operand. */
#ifndef PEN_BY_ROW_H
#define PEN_BY_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/topology/description.h"
#include "kernels/ops.h"

struct pen_graph;

enum pen_appended {
  PEN_APPENDED_ROW,
  PEN_APPENDED_CONSTANT,
  PEN_APPENDED_ATTENTION,
  PEN_APPENDED_POINTWISE,
  PEN_APPENDED_TOKEN_LOGP,
  PEN_APPENDED_EXPERTS,
  PEN_APPENDED_LOSS
};

/* A row of PEN_DESCRIBED. */
struct pen_described_row {
  int kind;
  const char *required, *optional; /* attributes, which blanks separate */
  enum pen_appended appended;
};

/* The row of that name; null: a description may not name it. */
const struct pen_described_row *pen_described_row_find(const char *name);
/* The names of all rows, for messages: "EMBEDDING, POSITION, ...". */
const char *pen_described_row_names(void);
/* Prints each row with its signature, its attributes and its meaning, a line each. */
void pen_described_rows_list(FILE *out);

/* Whether an op makes values of samples of those of tokens, or the reverse. */
enum pen_row_turn { PEN_TURN_NONE, PEN_TURN_TO_SAMPLES, PEN_TURN_TO_TOKENS };
enum pen_row_turn pen_row_turn_of(int kind);

/* Whether an op that the losses alone depend on is of f32 in a bf16 model. */
enum pen_row_f32 { PEN_F32_NEVER, PEN_F32_READS_F32, PEN_F32_READS_ANY };
enum pen_row_f32 pen_row_f32_of(int kind);

/* What an operand of an op may be. */
enum pen_operand_class {
  PEN_READS_VALUE,    /* what an op has computed */
  PEN_READS_WEIGHT,   /* which a rule gives a gradient that is accumulated; of a block of ops, what
                         has no rows */
  PEN_READS_DATA,     /* of the step, whose name is the operand's: tokens, targets, share, starts */
  PEN_READS_CONSTANT, /* without a gradient: computed at start */
};
enum pen_operand_class pen_operand_class_of(int kind, int operand);
/* How many outputs a description names: the first, and the others that have a gradient. */
int pen_described_outputs(int kind);

/* The sizes of a step on which dims depend. */
struct pen_step_sizes {
  int64_t batch, sequence, rows, positions, group;
};

/* What an op reads as one of its inputs. */
struct pen_read_shape {
  bool given;        /* false: the operand is absent */
  uint64_t elements; /* of a value */
  uint32_t dim_count;
  uint64_t dim[PEN_OPERAND_EXTENTS]; /* of a weight; dim_count 0: it is none */
};

struct pen_described_op; /* gen/topology/description.h */

/* Dims and reals of an op in the order of its row; `read` has all its inputs. Returns null, or why
 * the shapes or attributes do not match the row. */
const char *pen_row_dims(const struct pen_described_row *row, const struct pen_described_op *op,
                         const struct pen_read_shape *read, const struct pen_step_sizes *sizes,
                         int64_t dim[PEN_DIMS_MAX], double real[PEN_REALS_MAX]);

/* Elements of an output of the op. */
uint64_t pen_row_output_elements(int kind, int output, const int64_t dim[PEN_DIMS_MAX]);

#endif
