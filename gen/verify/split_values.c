/* split_values.c: what a value of a stage's forward is, in splits and tokens. */
#include "gen/verify/split_values.h"

#include "gen/model/op_signature.h"
#include "gen/verify/problem.h"

const struct pen_term *pen_split_term(const struct pen_split_check *c) {
  return &c->s->terms->term[c->forward];
}

bool pen_split_problem(const struct pen_split_check *c, const char *text) {
  return pen_problem_note(c->s->context->checked->problem, c->s->context->rank, c->action,
                          "whole: %s of stage %u %s",
                          pen_signature_of((int)pen_split_term(c)->kind)->kind, c->s->stage, text);
}

struct pen_split_value pen_split_input(const struct pen_split_check *c, int k) {
  return c->part[pen_split_term(c)->input[k]];
}

void pen_split_set_outputs(struct pen_split_check *c, struct pen_split_value part) {
  const struct pen_signature *signature = pen_signature_of((int)pen_split_term(c)->kind);
  if (part.kind == PEN_VALUE_PARTIAL && part.first == 0 && part.past == c->splits)
    part = (struct pen_split_value){.kind = PEN_VALUE_WHOLE, .tokens = part.tokens};
  for (int k = signature->input_count; k < signature->operand_count; k++)
    c->part[pen_term_output(c->forward, k)] = part;
}

uint32_t pen_first_own_split(const struct pen_rank_context *b) {
  return b->tensor_rank * pen_local_split_count(b->plan, b->split_count);
}

const struct pen_weight *pen_split_weight(const struct pen_split_check *c, int k) {
  const uint32_t value = pen_split_term(c)->input[k];
  const struct pen_term *given = value ? &c->s->terms->term[pen_term_of_value(value)] : NULL;
  return given && given->kind == PEN_TERM_WEIGHT ? &c->s->context->plan->weights[given->dim[0]]
                                                 : NULL;
}

uint32_t pen_split_tensor(const struct pen_split_check *c, const struct pen_weight *weight) {
  return (uint32_t)(weight - c->s->context->plan->weights) - weight->split;
}

int64_t pen_split_dim(const struct pen_split_check *c, const char *name) {
  const int dim = pen_signature_dim(pen_signature_of((int)pen_split_term(c)->kind), name);
  return dim < 0 ? 0 : pen_split_term(c)->dim[dim];
}

bool pen_split_has_sequences(struct pen_split_check *c, int64_t sequences) {
  if (c->sequences == 0) c->sequences = sequences;
  return sequences == c->sequences;
}

bool pen_split_has_rows_of(struct pen_split_check *c, int tokens) {
  const int64_t sequence = tokens == PEN_TOKENS_LAST ? 1 : c->s->context->profile->sequence,
                rows = pen_split_dim(c, "rows");
  return (rows % sequence == 0 && pen_split_has_sequences(c, rows / sequence)) ||
         pen_split_problem(c, "has a number of rows other than that of the tokens");
}

static bool has_dim(const struct pen_split_check *c, const char *name) {
  return pen_signature_dim(pen_signature_of((int)pen_split_term(c)->kind), name) >= 0;
}

/* `of_all`: the dims are of the tokens of all tensor ranks, as is the sum of the gradient. */
static bool has_all_runs(struct pen_split_check *c, int64_t tensor_ranks) {
  const bool by_run = has_dim(c, "run"), of_all = by_run || has_dim(c, "whole");
  const int64_t whole = c->s->context->profile->sequence, held = whole / tensor_ranks,
                rows = pen_split_dim(c, "rows"),
                all = by_run   ? rows
                      : of_all ? pen_split_dim(c, "whole")
                               : rows * tensor_ranks;
  return pen_split_dim(c, "sequence") == (of_all ? whole : held) &&
         pen_split_dim(c, "runs") == c->splits / (of_all ? 1 : tensor_ranks) && all % whole == 0 &&
         (by_run ? pen_split_dim(c, "own") : rows) * tensor_ranks == all &&
         (!by_run || (pen_split_dim(c, "run") == held &&
                      pen_split_dim(c, "first") ==
                          (tensor_ranks > 1 ? held * c->s->context->tensor_rank : 0))) &&
         pen_split_has_sequences(c, all / whole);
}

bool pen_split_has_all_runs(struct pen_split_check *c, int tokens) {
  return !has_dim(c, "runs") ||
         has_all_runs(
             c, tokens == PEN_TOKENS_SLICE ? pen_group_size(c->s->context->plan, PEN_TENSOR) : 1) ||
         pen_split_problem(c, "has the wrong number or length of sequence shards");
}

bool pen_split_has_no_runs(struct pen_split_check *c) {
  const bool embeds = pen_split_term(c)->kind == PEN_OP_EMBEDDING;
  return (pen_split_dim(c, "runs") == 0 && pen_split_dim(c, "splits") == 0 &&
          pen_split_term(c)->dtype != PEN_BF16_PARTIAL &&
          (!embeds || (pen_split_dim(c, "first") == 0 &&
                       pen_split_dim(c, "tokens") == pen_split_dim(c, "vocab"))) &&
          (!has_dim(c, "run") ||
           (pen_split_dim(c, "own") == pen_split_dim(c, "rows") && pen_split_dim(c, "first") == 0 &&
            pen_split_dim(c, "run") == pen_split_dim(c, "sequence")))) ||
         pen_split_problem(c, "has a part of the tokens, but no weight is split");
}

bool pen_split_check_next(struct pen_split_check *c, int k, struct pen_split_value next,
                          uint32_t begin) {
  const struct pen_split_value before = pen_split_input(c, k);
  if (!pen_split_term(c)->input[k]
          ? next.first != begin
          : before.kind != PEN_VALUE_PARTIAL || before.past != next.first ||
                before.group != next.group || before.first != begin || before.tokens != next.tokens)
    return pen_split_problem(c, "takes splits out of order");
  pen_split_set_outputs(
      c, (struct pen_split_value){PEN_VALUE_PARTIAL, begin, next.past, next.group, next.tokens});
  return true;
}

const struct pen_term *pen_split_source(const struct pen_split_check *c, uint32_t value) {
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  while (made->kind == PEN_OP_MAXIMUM || made->kind == PEN_OP_ALL_GATHER_PARTIAL ||
         made->kind == PEN_OP_ALL_TO_ALL_PARTIAL)
    made = &c->s->terms->term[pen_term_of_value(made->input[0])];
  return made;
}
