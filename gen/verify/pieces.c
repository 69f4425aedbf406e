/* pieces.c: are pieces of split weights used as one whole weight would be?
 *
 * Each value of a stage's forward is whole, of one piece, or a sum over a range of pieces that is
 * not complete (struct part). The rule here, with which messages begin:
 *
 *   whole   an op reads values of one piece, and whole ones. A product with piece p of a weight
 *           makes what is of piece p, or the partial sum of p. Sums add the partial sums of a
 * tensor pairwise: (0+1)+(2+3). The maximum over the vocabulary, joined logits, and the rows of an
 * embedding take the pieces one after the other. No other op reads a sum that is not complete, and
 * output and loss of a stage are whole
 *
 *   Where the members share the tokens, a value has the member's run of each sequence, by an
 * exchange of partial sums, or all tokens, by one of whole values. Products by columns read all
 * tokens, and so may nothing else that is gathered; sums over the tokens of a run are of the
 * member's part of the runs. What a stage gives the next one takes
 *
 * That gradients are summed likewise is part of "derived" (derivative.c). */
#include "gen/verify/pieces.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

/* ---- values ---- */

/* The pieces [first, past) that a value covers: as a part of the columns, or as a sum; and which
 * tokens: all of them, or none; the member's run of each sequence; all, gathered from the members.
 */
struct part {
  enum { WHOLE, OF_PIECE, PARTIAL } kind;
  uint32_t first, past;
  uint32_t group; /* what is summed: the term of the weight's tensor or of the logits' input */
  enum { ALL_TOKENS, OWN_RUN, GATHERED } tokens;
};

struct piece_check {
  const struct pen_stage_terms *s;
  uint32_t action, pieces;
  struct part *part; /* [value] */
  uint32_t forward;  /* the term in progress */
  int64_t sequences; /* of a microbatch; 0: no op has said so yet */
};

static const struct pen_term *term_of(const struct piece_check *c) {
  return &c->s->terms->term[c->forward];
}

static bool problem(const struct piece_check *c, const char *text) {
  return pen_problem_note(c->s->context->checked->problem, c->s->context->rank, c->action,
                          "whole: %s of stage %u %s", pen_signature_of((int)term_of(c)->kind)->kind,
                          c->s->stage, text);
}

static struct part input_part(const struct piece_check *c, int k) {
  return c->part[term_of(c)->input[k]];
}

static void set_outputs(struct piece_check *c, struct part part) {
  const struct pen_signature *signature = pen_signature_of((int)term_of(c)->kind);
  if (part.kind == PARTIAL && part.first == 0 && part.past == c->pieces)
    part = (struct part){.kind = WHOLE, .tokens = part.tokens};
  for (int k = signature->input_count; k < signature->operand_count; k++)
    c->part[pen_term_output(c->forward, k)] = part;
}

/* The member's first piece. */
static uint32_t first_own(const struct pen_rank_context *b) {
  return b->tensor_rank * (pen_piece_count(b->plan) / b->plan->tensor_ranks);
}

uint32_t pen_term_piece(const struct pen_stage_terms *s, uint32_t term) {
  const struct pen_plan *plan = s->context->plan;
  const struct pen_terms *terms = s->terms;
  const struct pen_term *t = &terms->term[term];
  const struct pen_signature *signature = pen_signature_of((int)t->kind);
  const int dim = pen_signature_dim(signature, "piece");
  if (dim >= 0) return (uint32_t)t->dim[dim];
  for (int k = 0; k < signature->input_count; k++) {
    const struct pen_term *input =
        t->input[k] ? &terms->term[pen_term_of_value(t->input[k])] : NULL;
    if (input && input->kind == PEN_TERM_WEIGHT)
      return plan->weights[input->dim[0]].piece - first_own(s->context);
  }
  return 0;
}

/* The weight that is operand k of a term, or null. */
static const struct pen_weight *weight_at(const struct piece_check *c, int k) {
  const uint32_t value = term_of(c)->input[k];
  const struct pen_term *given = value ? &c->s->terms->term[pen_term_of_value(value)] : NULL;
  return given && given->kind == PEN_TERM_WEIGHT ? &c->s->context->plan->weights[given->dim[0]]
                                                 : NULL;
}

/* ---- ops ---- */

typedef bool check_op(struct piece_check *c);

/* The first weight of a tensor, as a number of what is summed. */
static uint32_t tensor_number(const struct piece_check *c, const struct pen_weight *weight) {
  return (uint32_t)(weight - c->s->context->plan->weights) - weight->piece;
}

static int64_t dim_of(const struct piece_check *c, const char *name) {
  const int dim = pen_signature_dim(pen_signature_of((int)term_of(c)->kind), name);
  return dim < 0 ? 0 : term_of(c)->dim[dim];
}

/* Do all ops have as many sequences? */
static bool has_sequences(struct piece_check *c, int64_t sequences) {
  if (c->sequences == 0) c->sequences = sequences;
  return sequences == c->sequences;
}

/* Does an op over all tokens have the rows of the sequences? */
static bool has_all_rows(struct piece_check *c) {
  const int64_t sequence = c->s->context->profile->sequence, rows = dim_of(c, "rows");
  return (rows % sequence == 0 && has_sequences(c, rows / sequence)) ||
         problem(c, "has other rows than the tokens of the sequences");
}

static bool check_columns(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1), *bias = weight_at(c, 2);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if (term_of(c)->input[2] &&
      (!bias || bias->piece_count != c->pieces || bias->piece != weight->piece))
    return problem(c, "has a bias of another piece than its weight");
  if (input_part(c, 0).kind != WHOLE || input_part(c, 0).tokens == OWN_RUN)
    return problem(c, "reads what is not whole");
  set_outputs(c, (struct part){OF_PIECE, weight->piece, weight->piece + 1, term_of(c)->input[0],
                               ALL_TOKENS});
  return has_all_rows(c);
}

static bool check_rows(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1);
  const struct part x = input_part(c, 0);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if (x.kind != OF_PIECE || x.first != weight->piece)
    return problem(c, "multiplies a piece of its weight by another piece");
  set_outputs(c, (struct part){PARTIAL, x.first, x.past, tensor_number(c, weight), ALL_TOKENS});
  return has_all_rows(c);
}

/* Adds two neighbours of equal size, of which the first begins at a multiple of both. */
static bool join(struct piece_check *c, struct part *sum) {
  const struct part a = input_part(c, 0), b = input_part(c, 1);
  const uint32_t size = a.past - a.first;
  if (a.kind != PARTIAL || b.kind != PARTIAL || a.group != b.group || a.tokens != b.tokens)
    return problem(c, "adds what are not partial sums of one tensor");
  if (a.past != b.first || b.past - b.first != size || a.first % (2 * size) != 0)
    return problem(c, "adds partial sums in another order than (0+1)+(2+3)");
  *sum = (struct part){PARTIAL, a.first, b.past, a.group, a.tokens};
  return true;
}

static bool check_add(struct piece_check *c) {
  struct part sum;
  if (!join(c, &sum)) return false;
  if (term_of(c)->kind == PEN_OP_PARTIAL_ADD && sum.first == 0 && sum.past == c->pieces)
    return problem(c, "completes a sum without rounding it");
  set_outputs(c, sum);
  return true;
}

/* Sums over tokens are of as many runs of each sequence as there are pieces, or of the member's
 * part of them. */
static bool has_all_runs(struct piece_check *c, int tokens) {
  const int64_t members = tokens == OWN_RUN ? c->s->context->plan->tensor_ranks : 1,
                held = c->s->context->profile->sequence / members, rows = dim_of(c, "rows"),
                sequence = dim_of(c, "sequence"), run = dim_of(c, "run");
  if (pen_signature_dim(pen_signature_of((int)term_of(c)->kind), "runs") < 0) return true;
  const int64_t of = run ? sequence / held : 1; /* its gradient sums the runs of all members */
  return (run ? run : sequence) == held && of * held == sequence &&
         dim_of(c, "runs") == c->pieces / members * of && (of == 1 || of == members) &&
         has_sequences(c, rows ? rows / sequence : dim_of(c, "batch"));
}

static bool check_sum(struct piece_check *c) {
  struct part sum;
  if (!join(c, &sum)) return false;
  if (sum.first != 0 || sum.past != c->pieces) return problem(c, "ends a sum too early");
  if (!has_all_runs(c, sum.tokens))
    return problem(c, "has other runs of tokens than there are pieces");
  const struct pen_weight *bias = weight_at(c, 3);
  if (input_part(c, 2).kind != WHOLE || input_part(c, 3).kind != WHOLE ||
      (bias && bias->piece_count > 1))
    return problem(c, "adds what is not whole");
  if (term_of(c)->input[2] && input_part(c, 2).tokens != sum.tokens)
    return problem(c, "adds other tokens");
  set_outputs(c, sum);
  return true;
}

static bool check_heads(struct piece_check *c) {
  const struct part x = input_part(c, 0);
  if (x.kind != OF_PIECE || x.first != first_own(c->s->context) + (uint64_t)term_of(c)->dim[2])
    return problem(c, "is of another piece than it says");
  if (input_part(c, 1).kind != WHOLE || !weight_at(c, 1) || weight_at(c, 1)->piece_count != 1)
    return problem(c, "reads a gain that is not whole");
  set_outputs(c, x);
  return true;
}

/* The pieces so far, in operand k, and then the next; the first begins at piece `begin`. */
static bool check_next(struct piece_check *c, int k, struct part next, uint32_t begin) {
  const struct part before = input_part(c, k);
  if (!term_of(c)->input[k]
          ? next.first != begin
          : before.kind != PARTIAL || before.past != next.first || before.group != next.group ||
                before.first != begin || before.tokens != next.tokens)
    return problem(c, "takes pieces in another order");
  set_outputs(c, (struct part){PARTIAL, begin, next.past, next.group, next.tokens});
  return true;
}

static bool check_embedding(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if ((uint64_t)term_of(c)->dim[3] * weight->tensor_dim[1] != weight->run_first)
    return problem(c, "begins at another row than its piece");
  if (!has_all_rows(c)) return false;
  return check_next(c, 2,
                    (struct part){PARTIAL, weight->piece, weight->piece + 1,
                                  tensor_number(c, weight), ALL_TOKENS},
                    first_own(c->s->context));
}

/* What the logits are of that a term reads, or computes from a piece of the head and its input. */
static uint32_t group_of_logits(const struct piece_check *c, const struct pen_term *term) {
  return term->kind == PEN_OP_HEAD_MAXIMUM || term->kind == PEN_OP_HEAD_SUM
             ? term->input[0]
             : c->part[term->input[0]].group;
}

/* Does the term in progress begin at the row of the vocabulary at which the piece does whose logits
 * it reads, and know how many tokens there are? Else they are no product with a piece. */
static bool has_tokens_of_logits(const struct piece_check *c, int first, int tokens) {
  const struct pen_term *product = &c->s->terms->term[pen_term_of_value(term_of(c)->input[0])];
  const struct pen_term *given = &c->s->terms->term[pen_term_of_value(product->input[1])];
  const struct pen_weight *weight = &c->s->context->plan->weights[given->dim[0]];
  return product->kind == PEN_OP_LINEAR_COLUMNS &&
         (uint64_t)term_of(c)->dim[first] * weight->tensor_dim[1] == weight->run_first &&
         (uint64_t)term_of(c)->dim[tokens] == weight->tensor_dim[0];
}

static bool check_maximum(struct piece_check *c) {
  const struct part logits = input_part(c, 0);
  if (logits.kind != OF_PIECE) return problem(c, "reads no logits of a piece");
  return check_next(c, 1, logits, first_own(c->s->context));
}

/* The op that makes a value, or of which it is the greatest over the members, or a part. */
static const struct pen_term *source_of(const struct piece_check *c, uint32_t value) {
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  while (made->kind == PEN_OP_MAXIMUM || made->kind == PEN_OP_ALL_GATHER_PART ||
         made->kind == PEN_OP_ALL_TO_ALL_PART)
    made = &c->s->terms->term[pen_term_of_value(made->input[0])];
  return made;
}

/* Is operand k the value that a chain of ops of that kind has of these logits? */
static bool is_maximum_of(const struct piece_check *c, int k, uint32_t kind, struct part logits) {
  const uint32_t value = term_of(c)->input[k];
  const struct pen_term *made = value ? &c->s->terms->term[pen_term_of_value(value)] : NULL;
  if (!made || c->part[value].kind != WHOLE) return false;
  made = source_of(c, value);
  return made->kind == kind && group_of_logits(c, made) == logits.group;
}

static bool check_exponentials(struct piece_check *c) {
  const struct part logits = input_part(c, 0);
  if (logits.kind != OF_PIECE) return problem(c, "reads no logits of a piece");
  if (!is_maximum_of(c, 1, PEN_OP_LOGITS_MAXIMUM, logits))
    return problem(c, "reads no maximum over all its logits");
  set_outputs(c, (struct part){PARTIAL, logits.first, logits.past, logits.group, ALL_TOKENS});
  return true;
}

/* Is operand k the sum of the exponentials, by ops of that kind, of these logits? */
static bool is_sum_of(const struct piece_check *c, int k, uint32_t kind, struct part logits) {
  uint32_t value = term_of(c)->input[k];
  if (!value || c->part[value].kind != WHOLE) return false;
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  while (made->kind == PEN_OP_SUM_ADD || made->kind == PEN_OP_ALL_GATHER_PART)
    made = &c->s->terms->term[pen_term_of_value(made->input[0])];
  return made->kind == kind && group_of_logits(c, made) == logits.group;
}

static bool check_loss(struct piece_check *c) {
  const struct part logits = input_part(c, 0);
  if (logits.kind != OF_PIECE) return problem(c, "reads no logits of a piece");
  if (!is_maximum_of(c, 3, PEN_OP_LOGITS_MAXIMUM, logits) ||
      !is_sum_of(c, 4, PEN_OP_LOGITS_SUM, logits))
    return problem(c, "reads no maximum and sum over all its logits");
  if (!has_tokens_of_logits(c, 2, 3)) return problem(c, "has other tokens than its logits");
  set_outputs(c, (struct part){PARTIAL, logits.first, logits.past, logits.group, ALL_TOKENS});
  return true;
}

static bool check_join(struct piece_check *c) {
  const struct part logits = input_part(c, 0);
  if (logits.kind != OF_PIECE) return problem(c, "reads no logits of a piece");
  if (!has_tokens_of_logits(c, 2, 3)) return problem(c, "has other tokens than its logits");
  return check_next(c, 1, logits, first_own(c->s->context));
}

/* ---- logits that the op computes ---- */

/* The logits of an op that multiplies its first input with a piece of the head. */
static bool find_own_logits(struct piece_check *c, struct part *logits) {
  const struct pen_weight *weight = weight_at(c, 1);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if (input_part(c, 0).kind != WHOLE || input_part(c, 0).tokens == OWN_RUN)
    return problem(c, "reads what is not whole");
  *logits =
      (struct part){PARTIAL, weight->piece, weight->piece + 1, term_of(c)->input[0], ALL_TOKENS};
  return true;
}

static bool check_head_maximum(struct piece_check *c) {
  struct part logits;
  return find_own_logits(c, &logits) && check_next(c, 2, logits, first_own(c->s->context));
}

static bool check_head_sum(struct piece_check *c) {
  struct part logits;
  if (!find_own_logits(c, &logits)) return false;
  if (!is_maximum_of(c, 2, PEN_OP_HEAD_MAXIMUM, logits))
    return problem(c, "reads no maximum over all its logits");
  set_outputs(c, logits);
  return true;
}

static bool check_head_loss(struct piece_check *c) {
  struct part logits;
  if (!find_own_logits(c, &logits)) return false;
  if (!is_maximum_of(c, 4, PEN_OP_HEAD_MAXIMUM, logits) ||
      !is_sum_of(c, 5, PEN_OP_HEAD_SUM, logits))
    return problem(c, "reads no maximum and sum over all its logits");
  const struct pen_weight *weight = weight_at(c, 1);
  if ((uint64_t)term_of(c)->dim[4] * weight->tensor_dim[1] != weight->run_first ||
      (uint64_t)term_of(c)->dim[5] != weight->tensor_dim[0])
    return problem(c, "has other tokens than its logits");
  set_outputs(c, logits);
  return true;
}

/* The parts of all members: each has that of its own pieces, of the same tokens. */
static bool check_part_of(struct piece_check *c, int tokens) {
  const uint32_t own = c->pieces / c->s->context->plan->tensor_ranks,
                 begin = first_own(c->s->context);
  const struct part x = input_part(c, 0);
  if (x.kind != PARTIAL || x.first != begin || x.past != begin + own || x.tokens != ALL_TOKENS)
    return problem(c, "exchanges what is not the sum of the member's pieces");
  const uint32_t first = (uint32_t)dim_of(c, "member") * own;
  set_outputs(c, (struct part){PARTIAL, first, first + own, x.group, tokens});
  return true;
}

static bool check_part(struct piece_check *c) { return check_part_of(c, ALL_TOKENS); }

/* ---- tokens that the members share ---- */

/* Do the runs of an exchange, one a member, make up the sequences? */
static bool has_runs_of_members(struct piece_check *c) {
  return (dim_of(c, "members") == c->s->context->plan->tensor_ranks &&
          has_sequences(c, dim_of(c, "batch"))) ||
         problem(c, "divides other tokens than those of the sequences");
}

/* Of each member's part the own run. */
static bool check_part_of_run(struct piece_check *c) {
  return has_runs_of_members(c) && check_part_of(c, OWN_RUN);
}

static bool check_gather(struct piece_check *c) {
  const struct part x = input_part(c, 0);
  if (x.kind != WHOLE || x.tokens != OWN_RUN)
    return problem(c, "gathers what is not a run of the tokens");
  set_outputs(c, (struct part){.kind = WHOLE, .tokens = GATHERED});
  return has_runs_of_members(c);
}

/* The numbers of the tokens of the own run, of data of the step. */
static bool check_own_run(struct piece_check *c) {
  const int64_t sequence = c->s->context->profile->sequence,
                run = sequence / c->s->context->plan->tensor_ranks;
  const struct part x = input_part(c, 0);
  if (x.kind != WHOLE || x.tokens != ALL_TOKENS || dim_of(c, "sequence") != sequence ||
      dim_of(c, "run") != run || dim_of(c, "first") != run * c->s->context->tensor_rank ||
      !has_sequences(c, dim_of(c, "batch")))
    return problem(c, "is of other tokens than the member's");
  set_outputs(c, (struct part){.kind = WHOLE, .tokens = OWN_RUN});
  return true;
}

static bool check_position(struct piece_check *c) {
  const struct part x = input_part(c, 0), starts = input_part(c, 2);
  if (x.kind != WHOLE || x.tokens != OWN_RUN || starts.kind != WHOLE ||
      starts.tokens != ALL_TOKENS || !weight_at(c, 1) || weight_at(c, 1)->piece_count != 1)
    return problem(c, "reads what is not whole");
  if (!has_all_runs(c, x.tokens) || dim_of(c, "run") == 0 ||
      dim_of(c, "first") != dim_of(c, "run") * c->s->context->tensor_rank ||
      dim_of(c, "own") * dim_of(c, "sequence") != dim_of(c, "rows") * dim_of(c, "run"))
    return problem(c, "is of other tokens than the member's");
  set_outputs(c, x);
  return true;
}

/* The numbers of all tokens, of which a value may be the own run. */
static uint32_t all_numbers(const struct piece_check *c, uint32_t value) {
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  return made->kind == PEN_OP_OWN_RUN ? made->input[0] : value;
}

/* ---- members ---- */

static bool check_greatest(struct piece_check *c) {
  const struct part a = input_part(c, 0), b = input_part(c, 1);
  for (int k = 0; k < 2; k++) {
    const uint32_t kind = source_of(c, term_of(c)->input[k])->kind;
    if (kind != PEN_OP_LOGITS_MAXIMUM && kind != PEN_OP_HEAD_MAXIMUM)
      return problem(c, "reads no maximum of logits");
  }
  if (a.kind != PARTIAL || b.kind != PARTIAL || a.group != b.group || a.first != 0 ||
      a.past != b.first)
    return problem(c, "takes members in another order");
  set_outputs(c, (struct part){PARTIAL, 0, b.past, a.group, ALL_TOKENS});
  return true;
}

/* The rows that a member has embedded, and those of the members before it. */
static bool check_select(struct piece_check *c) {
  const struct part x = input_part(c, 1);
  const struct pen_term *rows = source_of(c, term_of(c)->input[1]);
  const struct pen_weight *weights = c->s->context->plan->weights;
  if (x.kind != PARTIAL || rows->kind != PEN_OP_EMBEDDING_ROWS ||
      rows->input[0] != all_numbers(c, term_of(c)->input[0]) || x.tokens != input_part(c, 0).tokens)
    return problem(c, "reads no rows of an embedding of its tokens");
  const struct pen_weight *first = &weights[x.group + x.first],
                          *last = &weights[x.group + x.past - 1];
  const uint64_t begin = first->run_first, past = last->run_first + last->run_count,
                 width = first->tensor_dim[1];
  if ((uint64_t)term_of(c)->dim[3] * width != begin ||
      (uint64_t)(term_of(c)->dim[3] + term_of(c)->dim[2]) * width != past)
    return problem(c, "has other tokens than the member");
  return check_next(c, 2, x, 0);
}

/* What all inputs but weights have: they are of the same tokens. */
static bool check_tokens(struct piece_check *c, int *tokens) {
  const struct pen_signature *signature = pen_signature_of((int)term_of(c)->kind);
  bool any = false;
  *tokens = ALL_TOKENS;
  for (int k = 0; k < signature->input_count; k++) {
    if (!term_of(c)->input[k] || weight_at(c, k)) continue;
    const int own = input_part(c, k).tokens;
    if (own == GATHERED) return problem(c, "reads gathered tokens, but is no product by columns");
    if (any && own != *tokens) return problem(c, "mixes a run of the tokens and all");
    *tokens = own;
    any = true;
  }
  return true;
}

/* All other ops: their values are whole or of one piece. */
static bool check_other(struct piece_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)term_of(c)->kind);
  struct part all = {.kind = WHOLE};
  int tokens;
  if (!check_tokens(c, &tokens)) return false;
  for (int k = 0; k < signature->input_count; k++) {
    const struct part own = input_part(c, k);
    const struct pen_weight *weight = weight_at(c, k);
    if (own.kind == PARTIAL) return problem(c, "reads a partial sum as a whole");
    if (weight && weight->piece_count > 1) return problem(c, "reads a piece as a whole weight");
    if (own.kind == WHOLE) continue;
    if (all.kind == OF_PIECE && all.first != own.first) return problem(c, "mixes two pieces");
    all = own;
  }
  if (!has_all_runs(c, tokens))
    return problem(c, "sums other runs of tokens than there are pieces");
  all.group = 0; /* no longer a product: no logits */
  all.tokens = tokens;
  set_outputs(c, all);
  return true;
}

/* A bias of columns is split like them. */
static bool check_bias(struct piece_check *c) {
  const struct part x = input_part(c, 0);
  const struct pen_weight *bias = weight_at(c, 1);
  if (x.kind != OF_PIECE) return check_other(c);
  if (!bias || bias->piece_count != c->pieces || bias->piece != x.first)
    return problem(c, "has a bias of another piece than its columns");
  set_outputs(c, (struct part){OF_PIECE, x.first, x.past, 0, ALL_TOKENS});
  return true;
}

static check_op *check_of(uint32_t kind) {
  switch (kind) {
    case PEN_OP_LINEAR_COLUMNS:
    case PEN_OP_AFFINE_COLUMNS: return check_columns;
    case PEN_OP_LINEAR_ROWS:
    case PEN_OP_AFFINE_ROWS: return check_rows;
    case PEN_OP_PARTIAL_ADD:
    case PEN_OP_SUM_ADD: return check_add;
    case PEN_OP_SUM_PARTIALS:
    case PEN_OP_SUM_PARTIALS_OWN: return check_sum;
    case PEN_OP_RMSNORM_HEADS: return check_heads;
    case PEN_OP_BIAS: return check_bias;
    case PEN_OP_EMBEDDING_ROWS: return check_embedding;
    case PEN_OP_LOGITS_MAXIMUM: return check_maximum;
    case PEN_OP_LOGITS_SUM: return check_exponentials;
    case PEN_OP_CROSS_ENTROPY_COLUMNS: return check_loss;
    case PEN_OP_HEAD_MAXIMUM: return check_head_maximum;
    case PEN_OP_HEAD_SUM: return check_head_sum;
    case PEN_OP_HEAD_LOSS_COLUMNS: return check_head_loss;
    case PEN_OP_LOGITS_JOIN: return check_join;
    case PEN_OP_ALL_GATHER_PART: return check_part;
    case PEN_OP_ALL_TO_ALL_PART: return check_part_of_run;
    case PEN_OP_ALL_GATHER_RUNS: return check_gather;
    case PEN_OP_OWN_RUN: return check_own_run;
    case PEN_OP_POSITION_OWN: return check_position;
    case PEN_OP_MAXIMUM: return check_greatest;
    case PEN_OP_EMBEDDING_SELECT: return check_select;
    default: return check_other;
  }
}

bool pen_check_piece_terms(const struct pen_stage_terms *s, uint32_t action, bool takes_run,
                           bool *gives_run) {
  const struct pen_plan *plan = s->context->plan;
  const uint32_t output = s->context->profile->stages[s->stage].output,
                 input = s->context->profile->stages[s->stage].input;
  struct piece_check c = {.s = s, .action = action, .pieces = pen_piece_count(plan)};
  bool fine = true;
  if (c.pieces == 1) return true;
  if (output != PEN_NONE) pen_stage_value(s, output); /* then it has a number */
  if (input != PEN_NONE) pen_stage_value(s, input);
  c.part = pen_new(pen_terms_past_value(s->terms), sizeof *c.part);
  if (input != PEN_NONE && takes_run) c.part[pen_stage_value(s, input)].tokens = OWN_RUN;
  for (size_t n = 0; n < s->forward_count && fine; n++) {
    c.forward = s->forward[n];
    fine = check_of(term_of(&c)->kind)(&c);
  }
  const uint32_t result = s->loss ? s->loss : output == PEN_NONE ? 0 : pen_stage_value(s, output);
  *gives_run = c.part[result].tokens == OWN_RUN;
  const int tokens = c.part[result].tokens;
  if (fine && (c.part[result].kind != WHOLE || tokens == GATHERED || (s->loss && *gives_run)))
    fine = pen_problem_note(s->context->checked->problem, s->context->rank, action,
                            "whole: the result of stage %u is a part", s->stage);
  pen_free(c.part);
  return fine;
}
