/* stage_terms.h: what the programs of a stage compute for one microbatch, as terms. */
#ifndef PEN_STAGE_TERMS_H
#define PEN_STAGE_TERMS_H

#include <stddef.h>
#include <stdint.h>

#include "gen/verify/rank_context.h"

/* ---- values as terms: an op applied to other values, or what a stage is given. Each term is
 * stored once, so two values are equal exactly if they have one number ---- */

/* Kinds of terms: those of ops, and what a stage is given. */
enum {
  PEN_TERM_WEIGHT = PEN_OP_COUNT, /* dim[0]: index into the plan's weights; dtype as it is read */
  PEN_TERM_INPUT,                 /* of the stage */
  PEN_TERM_OUTPUT_GRADIENT,       /* of the stage */
  PEN_TERM_KEPT                   /* input[0]: those kept before, or 0; input[1]: the next output */
};

/* Two terms are compared byte by byte: there is no padding, and what a kind does not use is 0. */
struct pen_term {
  double real[PEN_REALS_MAX];
  int64_t dim[PEN_DIMS_MAX];
  uint32_t input[PEN_OPERANDS_MAX]; /* values; 0: absent. At the places of the op's operands */
  uint32_t kind, dtype;
};

_Static_assert(sizeof(struct pen_term) ==
                   8 * PEN_REALS_MAX + 8 * PEN_DIMS_MAX + 4 * PEN_OPERANDS_MAX + 8,
               "no padding");

struct pen_terms {
  struct pen_term *term;
  size_t count;
  uint32_t *slot; /* hash table: index + 1; 0: free */
  size_t slots;
};

void pen_terms_clear(struct pen_terms *terms); /* keeps the memory */

/* The value that operand k of a term makes. Values are numbered from 1. */
static inline uint32_t pen_term_output(uint32_t term, int k) {
  return term * PEN_OPERANDS_MAX + (uint32_t)k + 1;
}

static inline uint32_t pen_term_of_value(uint32_t value) { return (value - 1) / PEN_OPERANDS_MAX; }

static inline int pen_operand_of_value(uint32_t value) {
  return (int)((value - 1) % PEN_OPERANDS_MAX);
}

/* Values are below this. */
static inline size_t pen_terms_past_value(const struct pen_terms *terms) {
  return terms->count * PEN_OPERANDS_MAX + 1;
}

/* The index of a term, which is stored if it is new. */
uint32_t pen_term_add(struct pen_terms *terms, const struct pen_term *term);

void pen_terms_free(struct pen_terms *terms);

/* What an op adds to the gradient of a weight, or of the head of a tied weight. */
struct pen_contribution {
  uint32_t weight; /* index into the plan's weights; weight_count + the tie of a head's gradient */
  uint32_t value;
  uint32_t op; /* index into the rank's ops */
};

/* A stage of one profile, after some of its programs ran. */
struct pen_stage_terms {
  const struct pen_rank_context *context;
  struct pen_terms *terms;
  uint32_t stage;
  uint32_t *value;   /* [tensor of the rank]: what it holds; 0: nothing yet */
  uint32_t *written; /* tensors that `value` has */
  size_t written_count;
  uint32_t *forward; /* terms of forward ops in the order in which they first ran */
  bool *is_listed;   /* [term]: whether `forward` has it */
  size_t forward_count;
  struct pen_contribution *contribution; /* in the order of the ops */
  size_t contribution_count;
  struct pen_contribution *part_sum; /* the same to gradients of the microbatch, by tensor */
  size_t part_sum_count;
  uint32_t loss;                /* the value in the loss table; 0: none yet */
  struct pen_split_value *part; /* [value of the forward]: where it lies (splits.c); null: whole */
};

/* Opens the stages of a rank. */
void pen_stage_terms_open(struct pen_stage_terms *s, const struct pen_rank_context *context,
                          struct pen_terms *terms);
void pen_stage_terms_close(struct pen_stage_terms *s);

/* Starts the microbatch of a stage: only constants, weights and what comes from the neighbours have
 * a value. */
bool pen_stage_terms_start(struct pen_stage_terms *s, uint32_t stage);

/* Runs a program of the stage after those before it. `action`: an action that runs it. Returns
 * false after it noted a problem. */
bool pen_stage_terms_run(struct pen_stage_terms *s, uint32_t program, uint32_t action);

/* The value of a tensor, or 0. */
uint32_t pen_stage_value(const struct pen_stage_terms *s, uint32_t tensor);

#endif
