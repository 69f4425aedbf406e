/* splits.c: are splits of weights used as one whole weight would be?
 *
 * Each value of a stage's forward is whole, of one split, or a sum over a range of splits that is
 * not complete (struct pen_split_value). The rule here, with which messages begin:
 *
 *   whole   an op reads values of one split, and whole ones. A product with split p of a weight
 *           makes what is of split p, or the partial sum of p. Sums add the partial sums of a
 *           tensor pairwise: (0+1)+(2+3). The maximum over the vocabulary, joined logits, and the
 *           rows of an embedding take the splits one after the other. No other op reads a sum that
 *           is not complete, and output and loss of a stage are whole.
 *           Where the tensor ranks share the tokens, a value has the tensor rank's shard of each
 *           sequence, by an exchange of partial sums, or all tokens, by one of whole values.
 *           Products by columns read all tokens, and UNSHARD_SEQUENCE, and nothing else may read
 *           what is gathered; sums over the tokens of a shard are of the tensor rank's part of the
 *           runs. The next stage takes what a stage gives
 *
 * That gradients are summed likewise is part of "derived" (derivative.c). */
#include "gen/verify/splits.h"

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "gen/verify/split_logits.h"
#include "gen/verify/split_collectives.h"
#include "gen/verify/split_values.h"

/* ---- ops on whole values, or on those of one split ---- */

/* What all inputs but weights have: they are of the same tokens. */
static bool check_tokens(struct pen_split_check *c, int *tokens) {
  const struct pen_signature *signature = pen_signature_of((int)pen_split_term(c)->kind);
  bool any = false;
  *tokens = PEN_TOKENS_ALL;
  for (int k = 0; k < signature->input_count; k++) {
    if (!pen_split_term(c)->input[k] || pen_split_weight(c, k)) continue;
    const int own = pen_split_input(c, k).tokens;
    if (own == PEN_TOKENS_GATHERED)
      return pen_split_problem(c,
                               "reads a gathered sequence, but is not a column-parallel product");
    if (any && own != *tokens)
      return pen_split_problem(c, "mixes a sequence shard with full sequences");
    *tokens = own;
    any = true;
  }
  return true;
}

/* All other ops: their values are whole or of one split. */
static bool check_other(struct pen_split_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)pen_split_term(c)->kind);
  struct pen_split_value all = {.kind = PEN_VALUE_WHOLE};
  int tokens;
  if (!check_tokens(c, &tokens)) return false;
  if (pen_split_term(c)->dtype == PEN_BF16_PARTIAL)
    return pen_split_problem(c, "gives what is not rounded, and no partial sum");
  for (int k = 0; k < signature->input_count; k++) {
    const struct pen_split_value own = pen_split_input(c, k);
    const struct pen_weight *weight = pen_split_weight(c, k);
    if (own.kind == PEN_VALUE_PARTIAL)
      return pen_split_problem(c, "reads a partial sum as the full tensor");
    if (weight && weight->split_count > 1)
      return pen_split_problem(c, "reads a split as the full weight");
    if (own.kind == PEN_VALUE_WHOLE) continue;
    if (all.kind == PEN_VALUE_OF_SPLIT && all.first != own.first)
      return pen_split_problem(c, "mixes values of different splits");
    all = own;
  }
  if (!pen_split_has_all_runs(c, tokens)) return false;
  all.group = 0; /* no longer a product: no logits */
  all.tokens = tokens;
  pen_split_set_outputs(c, all);
  return true;
}

/* ---- products, and sums of what they make ---- */

static bool check_columns(struct pen_split_check *c) {
  const bool affine = pen_split_term(c)->kind == PEN_OP_AFFINE;
  const struct pen_weight *weight = pen_split_weight(c, 1),
                          *bias = affine ? pen_split_weight(c, 2) : NULL;
  if (!weight || weight->split_count != c->splits)
    return pen_split_problem(c, "does not read a split of a split weight");
  if (affine && (!bias || bias->split_count != c->splits || bias->split != weight->split))
    return pen_split_problem(c, "reads a weight and a bias of different splits");
  if (pen_split_input(c, 0).kind != PEN_VALUE_WHOLE ||
      pen_split_input(c, 0).tokens == PEN_TOKENS_SLICE)
    return pen_split_problem(c, "reads a partial sum or shard where the full tensor is required");
  if (pen_split_term(c)->dtype == PEN_BF16_PARTIAL)
    return pen_split_problem(c, "gives what is not rounded, and no partial sum");
  pen_split_set_outputs(
      c, (struct pen_split_value){PEN_VALUE_OF_SPLIT, weight->split, weight->split + 1,
                                  pen_split_term(c)->input[0], PEN_TOKENS_ALL});
  return pen_split_has_rows_of(c, pen_split_input(c, 0).tokens);
}

static bool check_rows(struct pen_split_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)pen_split_term(c)->kind);
  const struct pen_weight *weight = pen_split_weight(c, 1);
  const struct pen_split_value x = pen_split_input(c, 0);
  if (!weight || weight->split_count != c->splits)
    return pen_split_problem(c, "does not read a split of a split weight");
  if (x.kind != PEN_VALUE_OF_SPLIT || x.first != weight->split)
    return pen_split_problem(c, "multiplies an input and a weight of different splits");
  pen_split_set_outputs(c, (struct pen_split_value){PEN_VALUE_PARTIAL, x.first, x.past,
                                                    pen_split_tensor(c, weight), PEN_TOKENS_ALL});
  if (pen_operand_dtype(&signature->operand[signature->input_count], pen_split_term(c)->dtype) !=
      PEN_F32)
    return pen_split_problem(c, "rounds a partial sum");
  return pen_split_has_rows_of(c, PEN_TOKENS_ALL);
}

/* With a whole weight, or a split of one by columns or by rows; AFFINE is not by rows. */
static bool check_product(struct pen_split_check *c) {
  const bool affine = pen_split_term(c)->kind == PEN_OP_AFFINE;
  const struct pen_weight *weight = pen_split_weight(c, 1);
  const bool is_split = weight && weight->split_count > 1;
  if (pen_split_dim(c, "splits") != (is_split ? (int64_t)c->splits : 0))
    return pen_split_problem(c, "has a number of splits other than that of its weight");
  if (!is_split) return check_other(c);
  if (pen_split_term(c)->input[affine ? 3 : 2])
    return pen_split_problem(c, "adds to the product with a split");
  if (weight->dim[affine] != weight->tensor_dim[affine]) return check_columns(c);
  return affine ? pen_split_problem(c, "adds a bias to a partial sum") : check_rows(c);
}

/* Adds two neighbours of equal size, of which the first begins at a multiple of both. */
static bool join(struct pen_split_check *c, struct pen_split_value *sum) {
  const struct pen_split_value a = pen_split_input(c, 0), b = pen_split_input(c, 1);
  const uint32_t size = a.past - a.first;
  if (a.kind != PEN_VALUE_PARTIAL || b.kind != PEN_VALUE_PARTIAL || a.group != b.group ||
      a.tokens != b.tokens)
    return pen_split_problem(c, "adds operands that are not partial sums of one tensor");
  if (a.past != b.first || b.past - b.first != size || a.first % (2 * size) != 0)
    return pen_split_problem(c, "adds partial sums in another order than (0+1)+(2+3)");
  *sum = (struct pen_split_value){PEN_VALUE_PARTIAL, a.first, b.past, a.group, a.tokens};
  return true;
}

static bool check_add(struct pen_split_check *c) {
  struct pen_split_value sum;
  if (pen_split_term(c)->kind == PEN_OP_ADD && pen_split_input(c, 0).kind != PEN_VALUE_PARTIAL)
    return check_other(c);
  if (!join(c, &sum)) return false;
  if (pen_split_term(c)->kind == PEN_OP_ADD && sum.first == 0 && sum.past == c->splits)
    return pen_split_problem(c, "completes a sum without rounding it");
  pen_split_set_outputs(c, sum);
  return true;
}

static bool check_sum(struct pen_split_check *c) {
  struct pen_split_value sum;
  if (!join(c, &sum)) return false;
  if (sum.first != 0 || sum.past != c->splits)
    return pen_split_problem(c, "completes a sum before all partial sums are added");
  if (!pen_split_has_all_runs(c, sum.tokens)) return false;
  const struct pen_weight *bias = pen_split_weight(c, 3);
  if (pen_split_input(c, 2).kind != PEN_VALUE_WHOLE ||
      pen_split_input(c, 3).kind != PEN_VALUE_WHOLE || (bias && bias->split_count > 1))
    return pen_split_problem(c, "adds a partial sum or shard where the full tensor is required");
  if (pen_split_term(c)->input[2] && pen_split_input(c, 2).tokens != sum.tokens)
    return pen_split_problem(c, "adds an addend of other tokens than those of the sum");
  pen_split_set_outputs(c, sum);
  return true;
}

/* A norm of the heads of a split, by a gain that all splits read, or of whole values. */
static bool check_norm(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 0);
  if (x.kind != PEN_VALUE_OF_SPLIT) return check_other(c);
  if (pen_split_input(c, 1).kind != PEN_VALUE_WHOLE || !pen_split_weight(c, 1) ||
      pen_split_weight(c, 1)->split_count != 1)
    return pen_split_problem(c, "reads a gain that is split");
  pen_split_set_outputs(c, x);
  return (pen_split_dim(c, "runs") == 0 && pen_split_dim(c, "sequence") == 0) ||
         pen_split_problem(c, "has sequence shards of the heads of a split");
}

/* The head's input in a step of generation, a row of each sequence. */
static bool check_index_select(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 0);
  const int64_t rows = pen_split_dim(c, "rows");
  const uint32_t index = pen_split_term(c)->input[1];
  if (c->s->terms->term[pen_term_of_value(index)].kind != PEN_OP_LAST_TOKENS ||
      pen_operand_of_value(index) !=
          pen_signature_operand(pen_signature_of(PEN_OP_LAST_TOKENS), "index"))
    return pen_split_problem(c, "selects rows by an index other than that of the last tokens");
  if (x.kind != PEN_VALUE_WHOLE || x.tokens == PEN_TOKENS_SLICE || x.tokens == PEN_TOKENS_LAST)
    return pen_split_problem(c, "reads a partial sum or shard where the full tensor is required");
  if (pen_split_dim(c, "total") != rows * (int64_t)c->s->context->profile->sequence)
    return pen_split_problem(c, "selects from a number of rows other than that of the tokens");
  pen_split_set_outputs(
      c, (struct pen_split_value){.kind = PEN_VALUE_WHOLE, .tokens = PEN_TOKENS_LAST});
  return pen_split_has_rows_of(c, PEN_TOKENS_LAST);
}

static bool check_embedding(struct pen_split_check *c) {
  const struct pen_weight *weight = pen_split_weight(c, 1);
  if (!weight || weight->split_count != c->splits)
    return pen_split_problem(c, "does not read a split of a split weight");
  if ((uint64_t)pen_split_dim(c, "first") * weight->tensor_dim[1] != weight->run_first ||
      (uint64_t)pen_split_dim(c, "tokens") != weight->tensor_dim[0])
    return pen_split_problem(c, "begins at a row other than the first of its split");
  if (!pen_split_has_rows_of(c, PEN_TOKENS_ALL)) return false;
  return pen_split_check_next(
      c, 2,
      (struct pen_split_value){PEN_VALUE_PARTIAL, weight->split, weight->split + 1,
                               pen_split_tensor(c, weight), PEN_TOKENS_ALL},
      pen_first_own_split(c->s->context));
}

/* ---- ops that differ by what they read ---- */

/* A bias of columns is split like them. */
static bool check_bias(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 0);
  const struct pen_weight *bias = pen_split_weight(c, 1);
  if (x.kind != PEN_VALUE_OF_SPLIT) return check_other(c);
  if (!bias || bias->split_count != c->splits || bias->split != x.first)
    return pen_split_problem(c, "adds a bias to columns of a different split");
  pen_split_set_outputs(
      c, (struct pen_split_value){PEN_VALUE_OF_SPLIT, x.first, x.past, 0, PEN_TOKENS_ALL});
  return true;
}

/* ---- a stage ---- */

/* The split that input k is, or is of; PEN_NONE: it is no such. */
static uint32_t input_split(const struct pen_stage_terms *s, const struct pen_term *t, int k) {
  const struct pen_term *given =
      t->input[k] ? &s->terms->term[pen_term_of_value(t->input[k])] : NULL;
  if (!given || !s->part) return PEN_NONE;
  if (given->kind == PEN_TERM_WEIGHT) {
    const struct pen_weight *weight = &s->context->plan->weights[given->dim[0]];
    return weight->split_count > 1 ? weight->split : PEN_NONE;
  }
  const struct pen_split_value *part = &s->part[t->input[k]];
  return part->kind == PEN_VALUE_OF_SPLIT ? part->first : PEN_NONE;
}

uint32_t pen_term_split(const struct pen_stage_terms *s, uint32_t term) {
  const struct pen_term *t = &s->terms->term[term];
  const int count = pen_signature_of((int)t->kind)->input_count;
  for (int k = 0; k < count; k++) {
    const uint32_t split = input_split(s, t, k);
    if (split != PEN_NONE) return split - pen_first_own_split(s->context);
  }
  return PEN_NONE;
}

bool pen_term_shares(const struct pen_stage_terms *s, uint32_t term, int k) {
  const struct pen_term *t = &s->terms->term[term];
  return k < pen_signature_of((int)t->kind)->input_count && t->input[k] &&
         pen_term_split(s, term) != PEN_NONE && input_split(s, t, k) == PEN_NONE &&
         s->part[t->input[k]].kind == PEN_VALUE_WHOLE;
}

static pen_split_check_op *check_of(uint32_t kind) {
  switch (kind) {
    case PEN_OP_LINEAR:
    case PEN_OP_AFFINE: return check_product;
    case PEN_OP_AFFINE_ROWS: return check_rows;
    case PEN_OP_ADD:
    case PEN_OP_SUM_ADD: return check_add;
    case PEN_OP_SUM_PARTIALS: return check_sum;
    case PEN_OP_RMSNORM: return check_norm;
    case PEN_OP_BIAS: return check_bias;
    case PEN_OP_EMBEDDING: return check_embedding;
    case PEN_OP_INDEX_SELECT: return check_index_select;
    case PEN_OP_LOGITS_MAXIMUM: return pen_check_logits_maximum;
    case PEN_OP_LOGITS_SUM: return pen_check_logits_sum;
    case PEN_OP_CROSS_ENTROPY_COLUMNS: return pen_check_loss_columns;
    case PEN_OP_HEAD_MAXIMUM: return pen_check_head_maximum;
    case PEN_OP_HEAD_SUM: return pen_check_head_sum;
    case PEN_OP_HEAD_LOSS_COLUMNS: return pen_check_head_loss;
    case PEN_OP_LOGITS_JOIN: return pen_check_logits_join;
    case PEN_OP_ALL_GATHER_PARTIAL: return pen_check_gathered_part;
    case PEN_OP_ALL_TO_ALL_PARTIAL: return pen_check_part_of_run;
    case PEN_OP_ALL_GATHER_SEQUENCE: return pen_check_gathered_runs;
    case PEN_OP_SLICE_SEQUENCE: return pen_check_slice_sequence;
    case PEN_OP_UNSHARD_SEQUENCE: return pen_check_unshard;
    case PEN_OP_SHARD_SEQUENCE: return pen_check_shard;
    case PEN_OP_POSITION: return pen_check_position;
    case PEN_OP_MAXIMUM: return pen_check_maximum;
    case PEN_OP_EMBEDDING_SELECT: return pen_check_embedding_select;
    default: return check_other;
  }
}

bool pen_check_split_terms(struct pen_stage_terms *s, uint32_t action, bool takes_run,
                           bool *gives_run) {
  const uint32_t output = s->context->profile->stages[s->stage].output,
                 input = s->context->profile->stages[s->stage].input;
  struct pen_split_check c = {.s = s, .action = action, .splits = s->context->split_count};
  bool fine = true;
  for (size_t n = 0; c.splits == 1 && n < s->forward_count; n++) {
    c.forward = s->forward[n];
    if (!pen_split_has_no_runs(&c)) return false;
  }
  if (c.splits == 1) return true;
  if (output != PEN_NONE) pen_stage_value(s, output); /* then it has a number */
  if (input != PEN_NONE) pen_stage_value(s, input);
  pen_free(s->part);
  s->part = c.part = pen_new(pen_terms_past_value(s->terms), sizeof *c.part);
  if (input != PEN_NONE && takes_run) c.part[pen_stage_value(s, input)].tokens = PEN_TOKENS_SLICE;
  for (size_t n = 0; n < s->forward_count && fine; n++) {
    c.forward = s->forward[n];
    fine = check_of(pen_split_term(&c)->kind)(&c);
  }
  const uint32_t result = s->loss ? s->loss : output == PEN_NONE ? 0 : pen_stage_value(s, output);
  *gives_run = c.part[result].tokens == PEN_TOKENS_SLICE;
  const int tokens = c.part[result].tokens;
  if (fine && (c.part[result].kind != PEN_VALUE_WHOLE || tokens == PEN_TOKENS_GATHERED ||
               (s->loss && *gives_run)))
    fine = pen_problem_note(
        s->context->checked->problem, s->context->rank, action,
        "whole: the result of stage %u is a partial sum or shard, not the full tensor", s->stage);
  return fine;
}
