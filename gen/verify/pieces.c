/* pieces.c: are pieces of split weights used as one whole weight would be?
 *
 * Each value of a stage's forward is whole, of one piece, or a sum over a range of pieces that is
 * not complete (struct pen_piece_value). The rule here, with which messages begin:
 *
 *   whole   an op reads values of one piece, and whole ones. A product with piece p of a weight
 *           makes what is of piece p, or the partial sum of p. Sums add the partial sums of a
 *           tensor pairwise: (0+1)+(2+3). The maximum over the vocabulary, joined logits, and the
 *           rows of an embedding take the pieces one after the other. No other op reads a sum that
 *           is not complete, and output and loss of a stage are whole.
 *           Where the members share the tokens, a value has the member's run of each sequence, by
 *           an exchange of partial sums, or all tokens, by one of whole values. Products by columns
 *           read all tokens, and nothing else may read what is gathered; sums over the tokens of a
 *           run are of the member's part of the runs. The next stage takes what a stage gives
 *
 * That gradients are summed likewise is part of "derived" (derivative.c). */
#include "gen/verify/pieces.h"

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "gen/verify/piece_logits.h"
#include "gen/verify/piece_members.h"
#include "gen/verify/piece_values.h"

/* ---- ops on whole values, or on those of one piece ---- */

/* What all inputs but weights have: they are of the same tokens. */
static bool check_tokens(struct pen_piece_check *c, int *tokens) {
  const struct pen_signature *signature = pen_signature_of((int)pen_piece_term(c)->kind);
  bool any = false;
  *tokens = PEN_TOKENS_ALL;
  for (int k = 0; k < signature->input_count; k++) {
    if (!pen_piece_term(c)->input[k] || pen_piece_weight(c, k)) continue;
    const int own = pen_piece_input(c, k).tokens;
    if (own == PEN_TOKENS_GATHERED)
      return pen_piece_problem(c,
                               "reads a gathered sequence, but is not a column-parallel product");
    if (any && own != *tokens)
      return pen_piece_problem(c, "mixes a sequence shard with full sequences");
    *tokens = own;
    any = true;
  }
  return true;
}

/* All other ops: their values are whole or of one piece. */
static bool check_other(struct pen_piece_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)pen_piece_term(c)->kind);
  struct pen_piece_value all = {.kind = PEN_VALUE_WHOLE};
  int tokens;
  if (!check_tokens(c, &tokens)) return false;
  if (pen_piece_term(c)->dtype == PEN_BF16_PARTIAL)
    return pen_piece_problem(c, "gives what is not rounded, and no partial sum");
  for (int k = 0; k < signature->input_count; k++) {
    const struct pen_piece_value own = pen_piece_input(c, k);
    const struct pen_weight *weight = pen_piece_weight(c, k);
    if (own.kind == PEN_VALUE_PARTIAL)
      return pen_piece_problem(c, "reads a partial sum as the full tensor");
    if (weight && weight->piece_count > 1)
      return pen_piece_problem(c, "reads a piece as the full weight");
    if (own.kind == PEN_VALUE_WHOLE) continue;
    if (all.kind == PEN_VALUE_OF_PIECE && all.first != own.first)
      return pen_piece_problem(c, "mixes values of different pieces");
    all = own;
  }
  if (!pen_piece_has_all_runs(c, tokens)) return false;
  all.group = 0; /* no longer a product: no logits */
  all.tokens = tokens;
  pen_piece_set_outputs(c, all);
  return true;
}

/* ---- products, and sums of what they make ---- */

static bool check_columns(struct pen_piece_check *c) {
  const bool affine = pen_piece_term(c)->kind == PEN_OP_AFFINE;
  const struct pen_weight *weight = pen_piece_weight(c, 1),
                          *bias = affine ? pen_piece_weight(c, 2) : NULL;
  if (!weight || weight->piece_count != c->pieces)
    return pen_piece_problem(c, "does not read a piece of a split weight");
  if (affine && (!bias || bias->piece_count != c->pieces || bias->piece != weight->piece))
    return pen_piece_problem(c, "reads a weight and a bias of different pieces");
  if (pen_piece_input(c, 0).kind != PEN_VALUE_WHOLE ||
      pen_piece_input(c, 0).tokens == PEN_TOKENS_OWN_RUN)
    return pen_piece_problem(c, "reads a partial sum or shard where the full tensor is required");
  if (pen_piece_term(c)->dtype == PEN_BF16_PARTIAL)
    return pen_piece_problem(c, "gives what is not rounded, and no partial sum");
  pen_piece_set_outputs(
      c, (struct pen_piece_value){PEN_VALUE_OF_PIECE, weight->piece, weight->piece + 1,
                                  pen_piece_term(c)->input[0], PEN_TOKENS_ALL});
  return pen_piece_has_rows_of(c, pen_piece_input(c, 0).tokens);
}

static bool check_rows(struct pen_piece_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)pen_piece_term(c)->kind);
  const struct pen_weight *weight = pen_piece_weight(c, 1);
  const struct pen_piece_value x = pen_piece_input(c, 0);
  if (!weight || weight->piece_count != c->pieces)
    return pen_piece_problem(c, "does not read a piece of a split weight");
  if (x.kind != PEN_VALUE_OF_PIECE || x.first != weight->piece)
    return pen_piece_problem(c, "multiplies an input and a weight of different pieces");
  pen_piece_set_outputs(c, (struct pen_piece_value){PEN_VALUE_PARTIAL, x.first, x.past,
                                                    pen_piece_tensor(c, weight), PEN_TOKENS_ALL});
  if (pen_operand_dtype(&signature->operand[signature->input_count], pen_piece_term(c)->dtype) !=
      PEN_F32)
    return pen_piece_problem(c, "rounds a partial sum");
  return pen_piece_has_rows_of(c, PEN_TOKENS_ALL);
}

/* With a whole weight, or a piece of one by columns or by rows; AFFINE is not by rows. */
static bool check_product(struct pen_piece_check *c) {
  const bool affine = pen_piece_term(c)->kind == PEN_OP_AFFINE;
  const struct pen_weight *weight = pen_piece_weight(c, 1);
  const bool is_split = weight && weight->piece_count > 1;
  if (pen_piece_dim(c, "splits") != (is_split ? (int64_t)c->pieces : 0))
    return pen_piece_problem(c, "has a number of splits other than that of its weight");
  if (!is_split) return check_other(c);
  if (pen_piece_term(c)->input[affine ? 3 : 2])
    return pen_piece_problem(c, "adds to the product with a piece");
  if (weight->dim[affine] != weight->tensor_dim[affine]) return check_columns(c);
  return affine ? pen_piece_problem(c, "adds a bias to a partial sum") : check_rows(c);
}

/* Adds two neighbours of equal size, of which the first begins at a multiple of both. */
static bool join(struct pen_piece_check *c, struct pen_piece_value *sum) {
  const struct pen_piece_value a = pen_piece_input(c, 0), b = pen_piece_input(c, 1);
  const uint32_t size = a.past - a.first;
  if (a.kind != PEN_VALUE_PARTIAL || b.kind != PEN_VALUE_PARTIAL || a.group != b.group ||
      a.tokens != b.tokens)
    return pen_piece_problem(c, "adds operands that are not partial sums of one tensor");
  if (a.past != b.first || b.past - b.first != size || a.first % (2 * size) != 0)
    return pen_piece_problem(c, "adds partial sums in another order than (0+1)+(2+3)");
  *sum = (struct pen_piece_value){PEN_VALUE_PARTIAL, a.first, b.past, a.group, a.tokens};
  return true;
}

static bool check_add(struct pen_piece_check *c) {
  struct pen_piece_value sum;
  if (pen_piece_term(c)->kind == PEN_OP_ADD && pen_piece_input(c, 0).kind != PEN_VALUE_PARTIAL)
    return check_other(c);
  if (!join(c, &sum)) return false;
  if (pen_piece_term(c)->kind == PEN_OP_ADD && sum.first == 0 && sum.past == c->pieces)
    return pen_piece_problem(c, "completes a sum without rounding it");
  pen_piece_set_outputs(c, sum);
  return true;
}

static bool check_sum(struct pen_piece_check *c) {
  struct pen_piece_value sum;
  if (!join(c, &sum)) return false;
  if (sum.first != 0 || sum.past != c->pieces)
    return pen_piece_problem(c, "completes a sum before all partial sums are added");
  if (!pen_piece_has_all_runs(c, sum.tokens)) return false;
  const struct pen_weight *bias = pen_piece_weight(c, 3);
  if (pen_piece_input(c, 2).kind != PEN_VALUE_WHOLE ||
      pen_piece_input(c, 3).kind != PEN_VALUE_WHOLE || (bias && bias->piece_count > 1))
    return pen_piece_problem(c, "adds a partial sum or shard where the full tensor is required");
  if (pen_piece_term(c)->input[2] && pen_piece_input(c, 2).tokens != sum.tokens)
    return pen_piece_problem(c, "adds an addend of other tokens than those of the sum");
  pen_piece_set_outputs(c, sum);
  return true;
}

/* A norm of the heads of a piece, by a gain that all pieces read, or of whole values. */
static bool check_norm(struct pen_piece_check *c) {
  const struct pen_piece_value x = pen_piece_input(c, 0);
  if (x.kind != PEN_VALUE_OF_PIECE) return check_other(c);
  if (pen_piece_input(c, 1).kind != PEN_VALUE_WHOLE || !pen_piece_weight(c, 1) ||
      pen_piece_weight(c, 1)->piece_count != 1)
    return pen_piece_problem(c, "reads a gain that is split");
  pen_piece_set_outputs(c, x);
  return (pen_piece_dim(c, "runs") == 0 && pen_piece_dim(c, "sequence") == 0) ||
         pen_piece_problem(c, "has sequence shards of the heads of a piece");
}

/* The head's input in a step of generation, a row of each sequence. */
static bool check_index_select(struct pen_piece_check *c) {
  const struct pen_piece_value x = pen_piece_input(c, 0);
  const int64_t rows = pen_piece_dim(c, "rows");
  const uint32_t index = pen_piece_term(c)->input[1];
  if (c->s->terms->term[pen_term_of_value(index)].kind != PEN_OP_LAST_TOKENS ||
      pen_operand_of_value(index) !=
          pen_signature_operand(pen_signature_of(PEN_OP_LAST_TOKENS), "index"))
    return pen_piece_problem(c, "selects rows by an index other than that of the last tokens");
  if (x.kind != PEN_VALUE_WHOLE || x.tokens == PEN_TOKENS_OWN_RUN || x.tokens == PEN_TOKENS_LAST)
    return pen_piece_problem(c, "reads a partial sum or shard where the full tensor is required");
  if (pen_piece_dim(c, "total") != rows * (int64_t)c->s->context->profile->sequence)
    return pen_piece_problem(c, "selects from a number of rows other than that of the tokens");
  pen_piece_set_outputs(
      c, (struct pen_piece_value){.kind = PEN_VALUE_WHOLE, .tokens = PEN_TOKENS_LAST});
  return pen_piece_has_rows_of(c, PEN_TOKENS_LAST);
}

static bool check_embedding(struct pen_piece_check *c) {
  const struct pen_weight *weight = pen_piece_weight(c, 1);
  if (!weight || weight->piece_count != c->pieces)
    return pen_piece_problem(c, "does not read a piece of a split weight");
  if ((uint64_t)pen_piece_dim(c, "first") * weight->tensor_dim[1] != weight->run_first ||
      (uint64_t)pen_piece_dim(c, "tokens") != weight->tensor_dim[0])
    return pen_piece_problem(c, "begins at a row other than the first of its piece");
  if (!pen_piece_has_rows_of(c, PEN_TOKENS_ALL)) return false;
  return pen_piece_check_next(
      c, 2,
      (struct pen_piece_value){PEN_VALUE_PARTIAL, weight->piece, weight->piece + 1,
                               pen_piece_tensor(c, weight), PEN_TOKENS_ALL},
      pen_first_own_piece(c->s->context));
}

/* ---- ops that differ by what they read ---- */

/* A bias of columns is split like them. */
static bool check_bias(struct pen_piece_check *c) {
  const struct pen_piece_value x = pen_piece_input(c, 0);
  const struct pen_weight *bias = pen_piece_weight(c, 1);
  if (x.kind != PEN_VALUE_OF_PIECE) return check_other(c);
  if (!bias || bias->piece_count != c->pieces || bias->piece != x.first)
    return pen_piece_problem(c, "adds a bias to columns of a different piece");
  pen_piece_set_outputs(
      c, (struct pen_piece_value){PEN_VALUE_OF_PIECE, x.first, x.past, 0, PEN_TOKENS_ALL});
  return true;
}

/* ---- a stage ---- */

/* The piece that input k is, or is of; PEN_NONE: it is no such. */
static uint32_t input_piece(const struct pen_stage_terms *s, const struct pen_term *t, int k) {
  const struct pen_term *given =
      t->input[k] ? &s->terms->term[pen_term_of_value(t->input[k])] : NULL;
  if (!given || !s->part) return PEN_NONE;
  if (given->kind == PEN_TERM_WEIGHT) {
    const struct pen_weight *weight = &s->context->plan->weights[given->dim[0]];
    return weight->piece_count > 1 ? weight->piece : PEN_NONE;
  }
  const struct pen_piece_value *part = &s->part[t->input[k]];
  return part->kind == PEN_VALUE_OF_PIECE ? part->first : PEN_NONE;
}

uint32_t pen_term_piece(const struct pen_stage_terms *s, uint32_t term) {
  const struct pen_term *t = &s->terms->term[term];
  const int count = pen_signature_of((int)t->kind)->input_count;
  for (int k = 0; k < count; k++) {
    const uint32_t piece = input_piece(s, t, k);
    if (piece != PEN_NONE) return piece - pen_first_own_piece(s->context);
  }
  return PEN_NONE;
}

bool pen_term_shares(const struct pen_stage_terms *s, uint32_t term, int k) {
  const struct pen_term *t = &s->terms->term[term];
  return k < pen_signature_of((int)t->kind)->input_count && t->input[k] &&
         pen_term_piece(s, term) != PEN_NONE && input_piece(s, t, k) == PEN_NONE &&
         s->part[t->input[k]].kind == PEN_VALUE_WHOLE;
}

static pen_piece_check_op *check_of(uint32_t kind) {
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
    case PEN_OP_ALL_GATHER_PART: return pen_check_gathered_part;
    case PEN_OP_ALL_TO_ALL_PART: return pen_check_part_of_run;
    case PEN_OP_ALL_GATHER_RUNS: return pen_check_gathered_runs;
    case PEN_OP_OWN_RUN: return pen_check_own_run;
    case PEN_OP_POSITION: return pen_check_position;
    case PEN_OP_MAXIMUM: return pen_check_maximum;
    case PEN_OP_EMBEDDING_SELECT: return pen_check_embedding_select;
    default: return check_other;
  }
}

bool pen_check_piece_terms(struct pen_stage_terms *s, uint32_t action, bool takes_run,
                           bool *gives_run) {
  const uint32_t output = s->context->profile->stages[s->stage].output,
                 input = s->context->profile->stages[s->stage].input;
  struct pen_piece_check c = {.s = s, .action = action, .pieces = s->context->piece_count};
  bool fine = true;
  for (size_t n = 0; c.pieces == 1 && n < s->forward_count; n++) {
    c.forward = s->forward[n];
    if (!pen_piece_has_no_runs(&c)) return false;
  }
  if (c.pieces == 1) return true;
  if (output != PEN_NONE) pen_stage_value(s, output); /* then it has a number */
  if (input != PEN_NONE) pen_stage_value(s, input);
  pen_free(s->part);
  s->part = c.part = pen_new(pen_terms_past_value(s->terms), sizeof *c.part);
  if (input != PEN_NONE && takes_run) c.part[pen_stage_value(s, input)].tokens = PEN_TOKENS_OWN_RUN;
  for (size_t n = 0; n < s->forward_count && fine; n++) {
    c.forward = s->forward[n];
    fine = check_of(pen_piece_term(&c)->kind)(&c);
  }
  const uint32_t result = s->loss ? s->loss : output == PEN_NONE ? 0 : pen_stage_value(s, output);
  *gives_run = c.part[result].tokens == PEN_TOKENS_OWN_RUN;
  const int tokens = c.part[result].tokens;
  if (fine && (c.part[result].kind != PEN_VALUE_WHOLE || tokens == PEN_TOKENS_GATHERED ||
               (s->loss && *gives_run)))
    fine = pen_problem_note(
        s->context->checked->problem, s->context->rank, action,
        "whole: the result of stage %u is a partial sum or shard, not the full tensor", s->stage);
  return fine;
}
