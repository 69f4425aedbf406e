/* description.h: a model that the user describes: the file of model.description, family described
 * (docs/contracts.md, "Descriptions").
 *
 * The file is JSON. This is its content, checked as far as it can be without the rows of ops.def:
 * version, keys, types, names, numbers. gen/families/described.c reads the ops.
 */
#ifndef PEN_DESCRIPTION_H
#define PEN_DESCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

struct pen_family; /* gen/model/blocks.h */
struct pen_declared;
struct pen_pointwise_table; /* gen/model/pointwise.h */

enum {
  PEN_DESCRIPTION_VERSION = 1,
  PEN_DESCRIBED_EXTENT_MAX = 1 << 24, /* of a weight, or of a value for each token */
  PEN_OPERAND_EXTENTS = 3,            /* of a weight that an op reads, at most */
  PEN_DESCRIBED_OPS_MAX = 4096,       /* of a kind */
  PEN_DESCRIBED_OUTPUTS_MAX = 4,
  PEN_DESCRIBED_INPUTS_MAX = 16,
  PEN_DESCRIBED_STEPS_MAX = 32 /* of a program */
};

/* Where the runtime takes an input from: what "from" says, or without that a tensor of the data
 * with the input's name. */
enum pen_described_source {
  PEN_SOURCE_TOKENS,
  PEN_SOURCE_TARGETS,
  PEN_SOURCE_STARTS,
  PEN_SOURCE_NAME
};

/* What ops may read an input as. */
enum pen_input_use {
  PEN_USED_AS_IDS,     /* an i32 for each token */
  PEN_USED_AS_TARGETS, /* the same, of the loss: with a share; -100: ignored */
  PEN_USED_AS_VALUES,  /* in the dtype of the model */
  PEN_USED_AS_F32,     /* values in f32, in a bf16 model */
  PEN_INPUT_USES
};

struct pen_described_input {
  const char *name;
  enum pen_described_source from;
  uint8_t dtype; /* enum pen_input_dtype */
  uint32_t dim_count;
  uint64_t dim[PEN_INPUT_DIMS_MAX]; /* of a sample; 0: model.sequence */
  bool has_tokens;                  /* a sample is a sequence of tokens, or one */
  uint64_t width;                   /* elements for each token, or of a sample */
  /* Set by gen/families/described_inputs.c: */
  uint64_t limit;                                      /* ids are below; 0: no op says */
  const struct pen_declared *declared[PEN_INPUT_USES]; /* null: no op reads it so */
};

/* What a loss is multiplied with (plan.def, `shares`). */
struct pen_described_share {
  const char *name;
  uint8_t over;   /* enum pen_share_kind */
  uint32_t input; /* index of the inputs; PEN_NONE: it is of none */
  double factor, least;
};

/* A weight, or one of each layer. */
struct pen_described_weight {
  const char *name; /* "h.*.ln_1.weight": * is the number of a layer; of three dims the last one is
                       that of an expert */
  const char *tied; /* its other name, by which the head reads it; null: none */
  uint32_t dim_count;
  uint64_t
      dim[PEN_FILE_DIMS_MAX]; /* as files have it; of experts' matrices the first is how many */
  uint64_t elements;
  uint8_t initial; /* enum pen_initial */
  double deviation;
};

struct pen_described_attribute {
  const char *name;
  double value;
  bool is_whole; /* written without a point or exponent: exact as int64_t */
};

/* A step of an op's attribute `program`. */
struct pen_described_step {
  const char *name;   /* of kernels/steps.def */
  double argument[3]; /* its inputs, or its number */
  size_t count;
};

struct pen_described_op {
  const char *row;      /* of ops.def */
  const char **operand; /* [operand_count] ".ln_1.weight", the name of a value; null: absent */
  size_t operand_count;
  struct pen_described_attribute *attribute;
  size_t attribute_count;
  struct pen_described_step *step; /* [step_count]; 0: it has no attribute `program` */
  size_t step_count;
  const char *output[PEN_DESCRIBED_OUTPUTS_MAX];
  size_t output_count;
  const char *line; /* of the user's code; null: not said */
};

/* A kind of unit. Values between units are (batch, sequence, width). */
struct pen_described_kind {
  const char *name, *takes, *gives; /* values; null: none */
  uint64_t width;                   /* of what it takes */
  struct pen_described_op *op;
  size_t op_count;
};

/* A unit: a layer, or what comes before, between or after layers. */
struct pen_described_unit {
  const struct pen_described_kind *kind;
  const char *prefix; /* of the names of its weights: "h.3." */
  uint32_t layer;     /* PEN_NONE: it is no layer */
};

/* The ops of the last unit that make the logits of texts. */
struct pen_described_texts {
  uint32_t product, logits; /* ops: LINEAR, or TOKEN_LOGP, whose product the logits are, and the one
                               that makes them; PEN_NONE: there are none */
  uint64_t columns;         /* of the logits */
  bool *needed;             /* [op of the last unit]: the logits depend on it */
  const char *refused;      /* why score and generate do not take the model; null: they do */
};

struct pen_description {
  const char *path;
  int64_t sequence;   /* the longest that the model is for; 0: the description does not say */
  const char *config; /* the text of a checkpoint's config.json; null: none */
  struct pen_described_input *input;
  struct pen_described_share *share; /* [share_count]; 0: the loss has the share of its targets */
  bool is_bf16;                      /* model.dtype */
  bool loss_of_microbatch; /* shares are over a microbatch; the loss is the mean of microbatches */
  struct pen_described_weight *weight;
  struct pen_described_kind *kind;
  struct pen_described_unit *unit;
  size_t input_count, share_count, weight_count, kind_count, unit_count;
  uint32_t layer_count;
  const struct pen_described_op **experts; /* [layer_count] its MOE; null: it has none. Set by
                                              gen/topology/described_experts.c */
  const char *logits;                      /* the value that the key names; null: none */
  struct pen_described_texts texts;        /* set by gen/topology/description_texts.c */
  const struct pen_described_weight *tied; /* the weight with two names; null: none */
  unsigned char digest[32];                /* SHA-256 of the canonical form */
  /* what gen/families/described.c has made of it; null: not yet */
  const struct pen_family **family;
  struct pen_pointwise_table **pointwise; /* the programs of its ops */
};

/* Reads a description. Ends the generator (66 the file cannot be read, 78 it is no description)
 * with the file, the place in it, and what is allowed. */
struct pen_description *pen_description_read(const char *path);

/* The weight of that name, or other name; null: none is described. */
const struct pen_described_weight *pen_described_weight_find(const struct pen_description *from,
                                                             const char *name);

/* A weight as an operand of so many extents reads it: of one all elements; of two a matrix, from
 * whose shape in files extents of 1 are left out; of three as in files. False: it is none. */
bool pen_described_weight_view(const struct pen_described_weight *weight, int extent_count,
                               uint64_t dim[PEN_OPERAND_EXTENTS]);

/* Whether two ops have the same attributes, their programs included. */
bool pen_described_same_numbers(const struct pen_described_op *a, const struct pen_described_op *b);

/* "unit KIND, op 3, LINEAR (model.py:41)". `op` may be null: the unit as a whole. */
const char *pen_description_place(const struct pen_described_kind *kind,
                                  const struct pen_described_op *op);

/* Ends the generator (78): "FILE: unit KIND, op 3, LINEAR (model.py:41): " and the message. `unit`
 * is the name of its kind; `op` from 0, or null: the unit as a whole. */
_Noreturn void pen_description_fail(const struct pen_description *description,
                                    const struct pen_described_kind *kind,
                                    const struct pen_described_op *op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
