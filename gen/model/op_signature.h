/* op_signature.h: a parsed row of ops.def: the name, shape, dtype and alias of each operand, and
 * the value of size expressions such as `4*sequence*head_dim*2+131072` for given dims. */
#ifndef PEN_OP_SIGNATURE_H
#define PEN_OP_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/ops.h"
#include "runtime/plan/transports.h"

enum { PEN_SIGNATURE_NAME_BYTES = 24, PEN_EXTENTS_MAX = 4 };

/* One operand: `dx?[rows,in]:t@a` or `dw[out,in]+`. */
struct pen_operand {
  char name[PEN_SIGNATURE_NAME_BYTES];
  bool output;      /* it is after "->" */
  bool optional;    /* "?": may be PEN_NONE */
  bool accumulates; /* "+": the op adds to it */
  bool of_op;       /* ":t" or ":s": of the op's dtype */
  bool partial;     /* ":s": f32 in an op of dtype PEN_BF16_PARTIAL */
  uint8_t dtype;    /* enum pen_dtype otherwise; f32 if not given */
  int8_t alias;     /* "@": index of the input whose memory this output may use, or -1 */
  uint8_t extent_count;
  struct {
    int8_t dim; /* index of the op's dim, or -1: a number */
    int64_t number;
  } extent[PEN_EXTENTS_MAX];
};

/* A sum of products of the op's dims and numbers ("12*rows*width+64"); "rows<512" is the minimum;
 * "bf16" is 1 for an op of that dtype, else 0, and so is "f32"; "threads" is their number in a
 * rank.
 */
struct pen_formula {
  uint8_t factor_count;
  const struct pen_formula_factor {
    enum {
      PEN_FACTOR_NUMBER,
      PEN_FACTOR_DIM,
      PEN_FACTOR_LESSER,
      PEN_FACTOR_BF16,
      PEN_FACTOR_F32,
      PEN_FACTOR_THREADS
    } kind;
    uint8_t dim;
    bool ends; /* the product ends here */
    int64_t number;
  } * factor;
};

struct pen_signature {
  const char *kind; /* "LINEAR_DX" */
  bool is_data;     /* PEN_DATA_OP: the runtime fills the output */
  bool is_runtime;  /* PEN_RUNTIME_OP: the runtime runs it */
  bool is_block;    /* PEN_BLOCK_OP: other ops are appended in its place */
  uint8_t dim_count, real_count, operand_count, input_count; /* operands: inputs first */
  char dim[PEN_DIMS_MAX][PEN_SIGNATURE_NAME_BYTES];
  char real[PEN_REALS_MAX][PEN_SIGNATURE_NAME_BYTES];
  struct pen_operand operand[PEN_OPERANDS_MAX];
  struct pen_formula flops, workspace[PEN_DEVICES];
  uint8_t first_part, last_part; /* PEN_PARTS: operands; both 0: none are parts */
  uint8_t sum_dim;               /* PEN_SUM: a dim, and its value; without factors: no such row */
  struct pen_formula sum;
  const char *meaning; /* a sentence */
};

/* The signature of an op, parsed at the first call; static storage. Aborts with the row's name if
 * the row does not parse (tests/gen/verify.c parses all rows). `op_kind` below PEN_OP_COUNT. */
const struct pen_signature *pen_signature_of(int op_kind);

/* Parses one row of text into `signature`. Returns null, or a static text that says what is wrong.
 */
const char *pen_signature_parse(struct pen_signature *signature, const char *dims,
                                const char *reals, const char *text);

/* Index of a name among operands, dims or reals; -1: none. */
int pen_signature_operand(const struct pen_signature *signature, const char *name);
int pen_signature_dim(const struct pen_signature *signature, const char *name);
int pen_signature_real(const struct pen_signature *signature, const char *name);

/* Elements and bytes of an operand for dims in the op's order; UINT64_MAX if a dim is not positive
 * or the product overflows. */
uint64_t pen_operand_elements(const struct pen_operand *operand, const int64_t *dim);
uint64_t pen_operand_bytes(const struct pen_operand *operand, int op_dtype, const int64_t *dim);

/* Whether a part (PEN_PARTS) has no elements, since one of its dims is 0, and so is absent. */
bool pen_part_is_empty(const struct pen_operand *operand, const int64_t *dim);
/* The value of the formula of PEN_SUM; 0 without such a row. */
int64_t pen_signature_sum(const struct pen_signature *signature, const int64_t *dim);
/* Whether the dim of PEN_SUM is the value of its formula; true without such a row. */
bool pen_signature_adds_up(const struct pen_signature *signature, const int64_t *dim);

/* The dtype of an operand in an op of that dtype; the dtype of an op in a model of that dtype: f32
 * if no operand is ":t". */
uint8_t pen_operand_dtype(const struct pen_operand *operand, int op_dtype);
uint8_t pen_signature_dtype(const struct pen_signature *signature, int model_dtype);

/* Values of the columns flops, and workspace of a device (enum pen_device_kind) with so many
 * threads a rank, for dims in the op's order. Exact below 2^53. */
double pen_signature_flops(const struct pen_signature *signature, const int64_t *dim);
uint64_t pen_signature_workspace_bytes(const struct pen_signature *signature, int device,
                                       uint32_t threads, int op_dtype, const int64_t *dim);

#endif
