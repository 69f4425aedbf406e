/* split_logits.c: logits of the splits of the head, their maximum and sum over the vocabulary, and
 * the loss of them (the rule "whole" of splits.c). */
#include "gen/verify/split_logits.h"

/* What the logits are of that a term reads, or computes from a split of the head and its input. */
static uint32_t group_of_logits(const struct pen_split_check *c, const struct pen_term *term) {
  return term->kind == PEN_OP_HEAD_MAXIMUM || term->kind == PEN_OP_HEAD_SUM
             ? term->input[0]
             : c->part[term->input[0]].group;
}

/* Does the term in progress begin at the row of the vocabulary at which the split does whose logits
 * it reads, and know how many tokens there are? Else they are no product with a split. */
static bool has_tokens_of_logits(const struct pen_split_check *c, int first, int tokens) {
  const struct pen_term *product =
      &c->s->terms->term[pen_term_of_value(pen_split_term(c)->input[0])];
  const struct pen_term *given = &c->s->terms->term[pen_term_of_value(product->input[1])];
  const struct pen_weight *weight = &c->s->context->plan->weights[given->dim[0]];
  return product->kind == PEN_OP_LINEAR && weight->split_count == c->splits &&
         (uint64_t)pen_split_term(c)->dim[first] * weight->tensor_dim[1] == weight->run_first &&
         (uint64_t)pen_split_term(c)->dim[tokens] == weight->tensor_dim[0];
}

bool pen_check_logits_maximum(struct pen_split_check *c) {
  const struct pen_split_value logits = pen_split_input(c, 0);
  if (logits.kind != PEN_VALUE_OF_SPLIT) return pen_split_problem(c, "reads no logits of a split");
  return pen_split_check_next(c, 1, logits, pen_first_own_split(c->s->context));
}

/* Is operand k the value that a chain of ops of that kind has of these logits? */
static bool is_maximum_of(const struct pen_split_check *c, int k, uint32_t kind,
                          struct pen_split_value logits) {
  const uint32_t value = pen_split_term(c)->input[k];
  const struct pen_term *made = value ? &c->s->terms->term[pen_term_of_value(value)] : NULL;
  if (!made || c->part[value].kind != PEN_VALUE_WHOLE) return false;
  made = pen_split_source(c, value);
  return made->kind == kind && group_of_logits(c, made) == logits.group;
}

bool pen_check_logits_sum(struct pen_split_check *c) {
  const struct pen_split_value logits = pen_split_input(c, 0);
  if (logits.kind != PEN_VALUE_OF_SPLIT) return pen_split_problem(c, "reads no logits of a split");
  if (!is_maximum_of(c, 1, PEN_OP_LOGITS_MAXIMUM, logits))
    return pen_split_problem(c, "does not read the maximum of all its logits");
  pen_split_set_outputs(c, (struct pen_split_value){PEN_VALUE_PARTIAL, logits.first, logits.past,
                                                    logits.group, PEN_TOKENS_ALL});
  return true;
}

/* Is operand k the sum of the exponentials, by ops of that kind, of these logits? */
static bool is_sum_of(const struct pen_split_check *c, int k, uint32_t kind,
                      struct pen_split_value logits) {
  uint32_t value = pen_split_term(c)->input[k];
  if (!value || c->part[value].kind != PEN_VALUE_WHOLE) return false;
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  while (made->kind == PEN_OP_SUM_ADD || made->kind == PEN_OP_ALL_GATHER_PARTIAL)
    made = &c->s->terms->term[pen_term_of_value(made->input[0])];
  return made->kind == kind && group_of_logits(c, made) == logits.group;
}

bool pen_check_loss_columns(struct pen_split_check *c) {
  const struct pen_split_value logits = pen_split_input(c, 0);
  if (logits.kind != PEN_VALUE_OF_SPLIT) return pen_split_problem(c, "reads no logits of a split");
  if (!is_maximum_of(c, 3, PEN_OP_LOGITS_MAXIMUM, logits) ||
      !is_sum_of(c, 4, PEN_OP_LOGITS_SUM, logits))
    return pen_split_problem(c, "does not read the maximum and the sum of all its logits");
  if (!has_tokens_of_logits(c, 2, 3))
    return pen_split_problem(c, "covers a part of the vocabulary other than that of its logits");
  pen_split_set_outputs(c, (struct pen_split_value){PEN_VALUE_PARTIAL, logits.first, logits.past,
                                                    logits.group, PEN_TOKENS_ALL});
  return true;
}

bool pen_check_logits_join(struct pen_split_check *c) {
  const struct pen_split_value logits = pen_split_input(c, 0);
  if (logits.kind != PEN_VALUE_OF_SPLIT) return pen_split_problem(c, "reads no logits of a split");
  if (!has_tokens_of_logits(c, 2, 3))
    return pen_split_problem(c, "covers a part of the vocabulary other than that of its logits");
  return pen_split_check_next(c, 1, logits, pen_first_own_split(c->s->context));
}

/* ---- logits that the op computes ---- */

/* The logits of an op that multiplies its first input with a split of the head. */
static bool find_own_logits(struct pen_split_check *c, struct pen_split_value *logits) {
  const struct pen_weight *weight = pen_split_weight(c, 1);
  if (!weight || weight->split_count != c->splits)
    return pen_split_problem(c, "does not read a split of a split weight");
  if (pen_split_input(c, 0).kind != PEN_VALUE_WHOLE ||
      pen_split_input(c, 0).tokens == PEN_TOKENS_SLICE)
    return pen_split_problem(c, "reads a partial sum or shard where the full tensor is required");
  *logits = (struct pen_split_value){PEN_VALUE_PARTIAL, weight->split, weight->split + 1,
                                     pen_split_term(c)->input[0], PEN_TOKENS_ALL};
  return true;
}

bool pen_check_head_maximum(struct pen_split_check *c) {
  struct pen_split_value logits;
  return find_own_logits(c, &logits) &&
         pen_split_check_next(c, 2, logits, pen_first_own_split(c->s->context));
}

bool pen_check_head_sum(struct pen_split_check *c) {
  struct pen_split_value logits;
  if (!find_own_logits(c, &logits)) return false;
  if (!is_maximum_of(c, 2, PEN_OP_HEAD_MAXIMUM, logits))
    return pen_split_problem(c, "does not read the maximum of all its logits");
  pen_split_set_outputs(c, logits);
  return true;
}

bool pen_check_head_loss(struct pen_split_check *c) {
  struct pen_split_value logits;
  if (!find_own_logits(c, &logits)) return false;
  if (!is_maximum_of(c, 4, PEN_OP_HEAD_MAXIMUM, logits) ||
      !is_sum_of(c, 5, PEN_OP_HEAD_SUM, logits))
    return pen_split_problem(c, "does not read the maximum and the sum of all its logits");
  const struct pen_weight *weight = pen_split_weight(c, 1);
  if ((uint64_t)pen_split_term(c)->dim[4] * weight->tensor_dim[1] != weight->run_first ||
      (uint64_t)pen_split_term(c)->dim[5] != weight->tensor_dim[0])
    return pen_split_problem(c, "covers a part of the vocabulary other than that of its logits");
  pen_split_set_outputs(c, logits);
  return true;
}

/* ---- the maximum over the tensor ranks ---- */

bool pen_check_maximum(struct pen_split_check *c) {
  const struct pen_split_value a = pen_split_input(c, 0), b = pen_split_input(c, 1);
  for (int k = 0; k < 2; k++) {
    const uint32_t kind = pen_split_source(c, pen_split_term(c)->input[k])->kind;
    if (kind != PEN_OP_LOGITS_MAXIMUM && kind != PEN_OP_HEAD_MAXIMUM)
      return pen_split_problem(c, "does not read a maximum of logits");
  }
  if (a.kind != PEN_VALUE_PARTIAL || b.kind != PEN_VALUE_PARTIAL || a.group != b.group ||
      a.first != 0 || a.past != b.first)
    return pen_split_problem(c, "takes tensor ranks out of order");
  pen_split_set_outputs(
      c, (struct pen_split_value){PEN_VALUE_PARTIAL, 0, b.past, a.group, PEN_TOKENS_ALL});
  return true;
}
