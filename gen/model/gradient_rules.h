/* gradient_rules.h: the gradient rules of ops.def, parsed: which ops make which gradients of a
 * forward op. */
#ifndef PEN_GRADIENT_RULES_H
#define PEN_GRADIENT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

/* A word of a rule's operands, `name`, `name'`, `name*` or `+`: the forward op's operand of that
 * name. */
struct pen_rule_operand {
  int8_t operand; /* of `+`: none */
  char mark;      /* 0, '\'', '*', '+' */
};

/* PEN_GRADIENT: the words in the order of the backward op's operands, inputs first; its dims and
 * reals as indices of the forward op's, or -1: the dim is a number, the real 0. */
struct pen_gradient_rule {
  int forward, backward;
  bool weight_part;
  size_t input_count, count; /* of words */
  struct pen_rule_operand word[PEN_OPERANDS_MAX];
  int8_t dim[PEN_DIMS_MAX], real[PEN_REALS_MAX];
  uint8_t number[PEN_DIMS_MAX];
};

/* A dim of the backward op, by the dims of its forward op. */
static inline int64_t pen_rule_dim(const struct pen_gradient_rule *rule, int n,
                                   const int64_t *forward) {
  return rule->dim[n] < 0 ? rule->number[n] : forward[rule->dim[n]];
}

/* The dtype of the backward op, if the forward op has that dtype: an op that is f32 in a bf16 model
 * has a backward that is. */
uint8_t pen_rule_dtype(const struct pen_gradient_rule *rule, int forward_dtype, int model_dtype);

/* The rules in the order of ops.def. *count: how many. Parsed at the first call; static storage. A
 * row that does not parse ends the generator. */
const struct pen_gradient_rule *pen_gradient_rules(size_t *count);

/* PEN_PASS: the gradient of an input is that of an output. Indices of the op's operands. */
struct pen_pass_rule {
  int forward;
  int8_t input, output;
};

/* The rules in the order of ops.def, as above. */
const struct pen_pass_rule *pen_pass_rules(size_t *count);

/* The tensor rank whose part of an exchange an op makes; 0: the first, or there is one op for all.
 * Of the parts, which are of one x, and have one gradient, only the first passes it on. */
uint32_t pen_op_tensor_rank(int kind, const int64_t *dim);

/* The input whose gradient output k of a loss is: the output is named "d" and the input's name. -1:
 * it is none. */
int pen_loss_gradient_of(int loss, int k);

/* PEN_FUSED_LOSS, or PEN_FUSED_GRADIENT, whose `forward` is the I op. */
struct pen_fused_loss {
  int forward, weight, both;
};

/* The row whose loss or I op, or whose joint op, is of that kind, or null. */
const struct pen_fused_loss *pen_fused_loss_of(int forward);
const struct pen_fused_loss *pen_fused_loss_made_by(int both);

/* Whether an op of the backward, which adds to gradients of weights, is of I: several of one
 * program then add in the order of its ops. */
bool pen_op_adds_in_order(int backward);

/* PEN_KEPT: whether F alone runs ops of that kind. */
bool pen_op_is_kept(int kind);

/* PEN_MIXES_ROWS: whether a row of what the op makes depends on later rows, or on those of other
 * sequences. */
bool pen_op_mixes_rows(int kind);

#endif
