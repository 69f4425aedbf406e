/* split_collectives.c: what the tensor ranks of a rank exchange, and the tokens that they share
 * (the rule "whole" of splits.c). */
#include "gen/verify/split_collectives.h"

/* The parts of all tensor ranks: each has that of its own splits, of the same tokens. */
static bool check_part_of(struct pen_split_check *c, int tokens) {
  const uint32_t own = pen_local_split_count(c->s->context->plan, c->splits),
                 begin = pen_first_own_split(c->s->context);
  const struct pen_split_value x = pen_split_input(c, 0);
  if (x.kind != PEN_VALUE_PARTIAL || x.first != begin || x.past != begin + own ||
      x.tokens != PEN_TOKENS_ALL)
    return pen_split_problem(c, "sends a value other than the sum of this tensor rank's splits");
  const uint32_t first = (uint32_t)pen_split_dim(c, "tensor_rank") * own;
  pen_split_set_outputs(
      c, (struct pen_split_value){PEN_VALUE_PARTIAL, first, first + own, x.group, tokens});
  return true;
}

bool pen_check_gathered_part(struct pen_split_check *c) { return check_part_of(c, PEN_TOKENS_ALL); }

/* ---- tokens that the tensor ranks share ---- */

/* Do the runs of an exchange, one a tensor rank, make up the sequences? */
static bool has_runs_of_tensor_ranks(struct pen_split_check *c) {
  return (pen_split_dim(c, "tensor_ranks") == pen_group_size(c->s->context->plan, PEN_TENSOR) &&
          pen_split_has_sequences(c, pen_split_dim(c, "batch"))) ||
         pen_split_problem(c, "does not divide the sequences among the tensor ranks");
}

/* Of each tensor rank's part this rank's run. */
bool pen_check_part_of_run(struct pen_split_check *c) {
  return has_runs_of_tensor_ranks(c) && check_part_of(c, PEN_TOKENS_SLICE);
}

bool pen_check_gathered_runs(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 0);
  if (x.kind != PEN_VALUE_WHOLE || x.tokens != PEN_TOKENS_SLICE)
    return pen_split_problem(c, "gathers a tensor that is not a sequence shard");
  pen_split_set_outputs(
      c, (struct pen_split_value){.kind = PEN_VALUE_WHOLE, .tokens = PEN_TOKENS_GATHERED});
  return has_runs_of_tensor_ranks(c);
}

/* An op that names this rank's run, in the dim of that name and `first`, of a whole value that has
 * these tokens; its result has others. */
static bool check_own_run(struct pen_split_check *c, const char *run, unsigned from, unsigned to) {
  const int64_t sequence = c->s->context->profile->sequence,
                held = sequence / pen_group_size(c->s->context->plan, PEN_TENSOR);
  const struct pen_split_value x = pen_split_input(c, 0);
  if (x.kind != PEN_VALUE_WHOLE || x.tokens != from || pen_split_dim(c, "sequence") != sequence ||
      pen_split_dim(c, run) != held ||
      pen_split_dim(c, "first") != held * c->s->context->tensor_rank ||
      !pen_split_has_sequences(c, pen_split_dim(c, "batch")))
    return pen_split_problem(c, "does not use this tensor rank's sequence shard");
  pen_split_set_outputs(c, (struct pen_split_value){.kind = PEN_VALUE_WHOLE, .tokens = to});
  return true;
}

/* The numbers of the tokens of this rank's run, of data of the step. */
bool pen_check_slice_sequence(struct pen_split_check *c) {
  return check_own_run(c, "run", PEN_TOKENS_ALL, PEN_TOKENS_SLICE);
}

bool pen_check_unshard(struct pen_split_check *c) {
  return check_own_run(c, "tokens", PEN_TOKENS_GATHERED, PEN_TOKENS_ALL);
}

bool pen_check_shard(struct pen_split_check *c) {
  return check_own_run(c, "tokens", PEN_TOKENS_ALL, PEN_TOKENS_SLICE);
}

bool pen_check_position(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 0), starts = pen_split_input(c, 2);
  if (x.kind != PEN_VALUE_WHOLE || x.tokens == PEN_TOKENS_GATHERED || x.tokens == PEN_TOKENS_LAST ||
      starts.kind != PEN_VALUE_WHOLE || starts.tokens != PEN_TOKENS_ALL ||
      !pen_split_weight(c, 1) || pen_split_weight(c, 1)->split_count != 1)
    return pen_split_problem(c, "reads a partial sum or shard where the full tensor is required");
  pen_split_set_outputs(c, x);
  return pen_split_has_all_runs(c, x.tokens);
}

/* The numbers of all tokens, of which a value may be this rank's run. */
static uint32_t all_numbers(const struct pen_split_check *c, uint32_t value) {
  const struct pen_term *made = &c->s->terms->term[pen_term_of_value(value)];
  return made->kind == PEN_OP_SLICE_SEQUENCE ? made->input[0] : value;
}

/* ---- the vocabulary of the tensor ranks ---- */

/* The rows that a tensor rank has embedded, and those of the tensor ranks before it. */
bool pen_check_embedding_select(struct pen_split_check *c) {
  const struct pen_split_value x = pen_split_input(c, 1);
  const struct pen_term *rows = pen_split_source(c, pen_split_term(c)->input[1]);
  const struct pen_weight *weights = c->s->context->plan->weights;
  if (x.kind != PEN_VALUE_PARTIAL || rows->kind != PEN_OP_EMBEDDING ||
      rows->input[0] != all_numbers(c, pen_split_term(c)->input[0]) ||
      x.tokens != pen_split_input(c, 0).tokens)
    return pen_split_problem(c, "does not read embedding rows of its tokens");
  const struct pen_weight *first = &weights[x.group + x.first],
                          *last = &weights[x.group + x.past - 1];
  const uint64_t begin = first->run_first, past = last->run_first + last->run_count,
                 width = first->tensor_dim[1];
  if ((uint64_t)pen_split_term(c)->dim[3] * width != begin ||
      (uint64_t)(pen_split_term(c)->dim[3] + pen_split_term(c)->dim[2]) * width != past)
    return pen_split_problem(c, "covers a part of the vocabulary other than this tensor rank's");
  return pen_split_check_next(c, 2, x, 0);
}
