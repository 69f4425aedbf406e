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
 * That gradients are summed likewise is part of "derived" (derivative.c). */
#include "gen/verify/pieces.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

/* ---- the table ---- */

uint32_t pen_piece_count(const struct pen_plan *plan) {
  uint32_t most = 1;
  for (uint32_t w = 0; w < plan->weight_count; w++)
    if (plan->weights[w].piece_count > most) most = plan->weights[w].piece_count;
  return most;
}

/* What is wrong with a weight as the next piece of its tensor; null: nothing. */
static const char *piece_problem(const struct pen_plan *plan, uint32_t index) {
  const struct pen_weight *weight = &plan->weights[index];
  const bool first = weight->piece == 0, whole = weight->piece_count == 1,
             last = weight->piece + 1 == weight->piece_count;
  const uint64_t elements = pen_tensor_elements(weight), stride = weight->run_stride;
  if (weight->piece >= weight->piece_count ||
      (!whole && weight->piece_count != pen_piece_count(plan)))
    return "not one of its pieces";
  if (whole && strcmp(weight->name, weight->tensor) != 0) return "not named like its tensor";
  if (stride == 0 || elements % stride || weight->run_count > stride || weight->run_count == 0 ||
      weight->run_count * (elements / stride) != weight->count)
    return "not made of equal runs of the elements of its tensor";
  if (first) return weight->run_first ? "not at the start of its tensor" : NULL;
  if (index == 0 || strcmp(weight[-1].tensor, weight->tensor) != 0 ||
      weight[-1].piece + 1 != weight->piece || weight[-1].stage != weight->stage ||
      weight[-1].run_stride != stride || weight[-1].frozen != weight->frozen ||
      memcmp(weight[-1].tensor_dim, weight->tensor_dim, sizeof weight->tensor_dim) != 0)
    return "not after the piece before it";
  if (weight->run_first != weight[-1].run_first + weight[-1].run_count)
    return "not next to the piece before it";
  return last && weight->run_first + weight->run_count != stride ? "not at the end of its tensor"
                                                                 : NULL;
}

bool pen_check_piece_table(const struct pen_plan *plan, struct pen_problem *problem) {
  for (uint32_t index = 0; index < plan->weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[index], *next = weight + 1;
    const char *wrong = piece_problem(plan, index);
    const bool ends = index + 1 == plan->weight_count || next->piece != weight->piece + 1;
    if (!wrong && weight->piece + 1 < weight->piece_count && ends)
      wrong = "not followed by the piece after it";
    if (wrong)
      return pen_problem_note(problem, weight->rank, PEN_NONE, "counted: %s is %s", weight->name,
                              wrong);
  }
  return true;
}

/* ---- values ---- */

/* The pieces [first, past) that a value covers: as a part of the columns, or as a sum. */
struct part {
  enum { WHOLE, OF_PIECE, PARTIAL } kind;
  uint32_t first, past;
  uint32_t group; /* what is summed: the term of the weight's tensor or of the logits' input */
};

struct piece_check {
  const struct pen_stage_terms *s;
  uint32_t action, pieces;
  struct part *part; /* [value] */
  uint32_t forward;  /* the term in progress */
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
    part = (struct part){.kind = WHOLE};
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

static bool check_columns(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1), *bias = weight_at(c, 2);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if (term_of(c)->input[2] &&
      (!bias || bias->piece_count != c->pieces || bias->piece != weight->piece))
    return problem(c, "has a bias of another piece than its weight");
  if (input_part(c, 0).kind != WHOLE) return problem(c, "reads what is not whole");
  set_outputs(c, (struct part){OF_PIECE, weight->piece, weight->piece + 1, term_of(c)->input[0]});
  return true;
}

static bool check_rows(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1);
  const struct part x = input_part(c, 0);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if (x.kind != OF_PIECE || x.first != weight->piece)
    return problem(c, "multiplies a piece of its weight by another piece");
  set_outputs(c, (struct part){PARTIAL, x.first, x.past, tensor_number(c, weight)});
  return true;
}

/* Adds two neighbours of equal size, of which the first begins at a multiple of both. */
static bool join(struct piece_check *c, struct part *sum) {
  const struct part a = input_part(c, 0), b = input_part(c, 1);
  const uint32_t size = a.past - a.first;
  if (a.kind != PARTIAL || b.kind != PARTIAL || a.group != b.group)
    return problem(c, "adds what are not partial sums of one tensor");
  if (a.past != b.first || b.past - b.first != size || a.first % (2 * size) != 0)
    return problem(c, "adds partial sums in another order than (0+1)+(2+3)");
  *sum = (struct part){PARTIAL, a.first, b.past, a.group};
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

/* Sums over tokens are of as many runs of each sequence as there are pieces. */
static bool has_all_runs(const struct piece_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)term_of(c)->kind);
  const int runs = pen_signature_dim(signature, "runs"),
            sequence = pen_signature_dim(signature, "sequence");
  return runs < 0 || (term_of(c)->dim[runs] == c->pieces &&
                      term_of(c)->dim[sequence] == c->s->context->profile->sequence);
}

static bool check_sum(struct piece_check *c) {
  struct part sum;
  if (!join(c, &sum)) return false;
  if (sum.first != 0 || sum.past != c->pieces) return problem(c, "ends a sum too early");
  if (!has_all_runs(c)) return problem(c, "has other runs of tokens than there are pieces");
  const struct pen_weight *bias = weight_at(c, 3);
  if (input_part(c, 2).kind != WHOLE || input_part(c, 3).kind != WHOLE ||
      (bias && bias->piece_count > 1))
    return problem(c, "adds what is not whole");
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
  if (!term_of(c)->input[k] ? next.first != begin
                            : before.kind != PARTIAL || before.past != next.first ||
                                  before.group != next.group || before.first != begin)
    return problem(c, "takes pieces in another order");
  set_outputs(c, (struct part){PARTIAL, begin, next.past, next.group});
  return true;
}

static bool check_embedding(struct piece_check *c) {
  const struct pen_weight *weight = weight_at(c, 1);
  if (!weight || weight->piece_count != c->pieces) return problem(c, "reads no piece of a weight");
  if ((uint64_t)term_of(c)->dim[3] * weight->tensor_dim[1] != weight->run_first)
    return problem(c, "begins at another row than its piece");
  return check_next(
      c, 2, (struct part){PARTIAL, weight->piece, weight->piece + 1, tensor_number(c, weight)},
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

/* The op that makes a value, or of which it is the greatest over the members. */
static const struct pen_term *source_of(const struct piece_check *c, uint32_t value) {
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  while (made->kind == PEN_OP_MAXIMUM || made->kind == PEN_OP_ALL_GATHER_PART)
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
  set_outputs(c, (struct part){PARTIAL, logits.first, logits.past, logits.group});
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
  set_outputs(c, (struct part){PARTIAL, logits.first, logits.past, logits.group});
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
  if (input_part(c, 0).kind != WHOLE) return problem(c, "reads what is not whole");
  *logits = (struct part){PARTIAL, weight->piece, weight->piece + 1, term_of(c)->input[0]};
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

/* The parts of all members: each has that of its own pieces. */
static bool check_part(struct piece_check *c) {
  const uint32_t own = c->pieces / c->s->context->plan->tensor_ranks,
                 begin = first_own(c->s->context);
  const struct part x = input_part(c, 0);
  if (x.kind != PARTIAL || x.first != begin || x.past != begin + own)
    return problem(c, "exchanges what is not the sum of the member's pieces");
  const uint32_t first = (uint32_t)term_of(c)->dim[1] * own;
  set_outputs(c, (struct part){PARTIAL, first, first + own, x.group});
  return true;
}

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
  set_outputs(c, (struct part){PARTIAL, 0, b.past, a.group});
  return true;
}

/* The rows that a member has embedded, and those of the members before it. */
static bool check_select(struct piece_check *c) {
  const struct part x = input_part(c, 1);
  const struct pen_term *rows = source_of(c, term_of(c)->input[1]);
  const struct pen_weight *weights = c->s->context->plan->weights;
  if (x.kind != PARTIAL || rows->kind != PEN_OP_EMBEDDING_ROWS ||
      rows->input[0] != term_of(c)->input[0])
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

/* All other ops: their values are whole or of one piece. */
static bool check_other(struct piece_check *c) {
  const struct pen_signature *signature = pen_signature_of((int)term_of(c)->kind);
  struct part all = {.kind = WHOLE};
  for (int k = 0; k < signature->input_count; k++) {
    const struct part own = input_part(c, k);
    const struct pen_weight *weight = weight_at(c, k);
    if (own.kind == PARTIAL) return problem(c, "reads a partial sum as a whole");
    if (weight && weight->piece_count > 1) return problem(c, "reads a piece as a whole weight");
    if (own.kind == WHOLE) continue;
    if (all.kind == OF_PIECE && all.first != own.first) return problem(c, "mixes two pieces");
    all = own;
  }
  if (!has_all_runs(c)) return problem(c, "sums other runs of tokens than there are pieces");
  all.group = 0; /* no longer a product: no logits */
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
  set_outputs(c, (struct part){OF_PIECE, x.first, x.past, 0});
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
    case PEN_OP_SUM_PARTIALS: return check_sum;
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
    case PEN_OP_MAXIMUM: return check_greatest;
    case PEN_OP_EMBEDDING_SELECT: return check_select;
    default: return check_other;
  }
}

bool pen_check_piece_terms(const struct pen_stage_terms *s, uint32_t action) {
  const struct pen_plan *plan = s->context->plan;
  const uint32_t output = s->context->profile->stages[s->stage].output;
  struct piece_check c = {.s = s, .action = action, .pieces = pen_piece_count(plan)};
  bool fine = true;
  if (c.pieces == 1) return true;
  if (output != PEN_NONE) pen_stage_value(s, output); /* then it has a number */
  c.part = pen_new(pen_terms_past_value(s->terms), sizeof *c.part);
  for (size_t n = 0; n < s->forward_count && fine; n++) {
    c.forward = s->forward[n];
    fine = check_of(term_of(&c)->kind)(&c);
  }
  const uint32_t result = s->loss ? s->loss : output == PEN_NONE ? 0 : pen_stage_value(s, output);
  if (fine && c.part[result].kind != WHOLE)
    fine = pen_problem_note(s->context->checked->problem, s->context->rank, action,
                            "whole: the result of stage %u is a part", s->stage);
  pen_free(c.part);
  return fine;
}
