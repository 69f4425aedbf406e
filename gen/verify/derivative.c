/* derivative.c: derives the gradients of a stage from its forward terms.
 *
 * Reverse accumulation: the forward ops in reverse order; for each op first the rules PEN_PASS of
 * ops.def, then PEN_GRADIENT for inputs, then for weights. Where a value has several users, each
 * op's gradient has the sum so far as its addend ("+"), or is added to it by ADD. Where the ops of
 * all splits read a whole value, each split has such a sum, and they are added pairwise. Gradients
 * that nothing needs, of data and of frozen weights, have no term. The gradient of what a loss
 * reads is the loss's own output.
 *
 * Where the tensor ranks share the tokens of a value (ALL_GATHER_SEQUENCE, ALL_TO_ALL_PARTIAL),
 * each has the gradient of its own shard of them, also of the value that has all tokens. An op that
 * reads the gradient of all reads what is gathered; what an op sums over its run of tokens is
 * summed over the tensor ranks. */
#include "gen/verify/derivative.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/verify/splits.h"
#include "runtime/plan/plan.h"

/* ---- values ---- */

/* Operand k of a forward op. */
static uint32_t operand_value(const struct pen_derivative *d, uint32_t forward, int k) {
  const struct pen_term *term = &d->stage->terms->term[forward];
  return k < pen_signature_of((int)term->kind)->input_count ? term->input[k]
                                                            : pen_term_output(forward, k);
}

static bool is_needed(const struct pen_derivative *d, uint32_t forward, int k) {
  uint32_t value = operand_value(d, forward, k);
  return value && d->needs[value];
}

/* Is a value that the stage is given one whose gradient is needed? */
static bool given_needs(const struct pen_derivative *d, const struct pen_term *term) {
  if (term->kind == PEN_TERM_WEIGHT) return !d->stage->context->plan->weights[term->dim[0]].frozen;
  return term->kind == PEN_TERM_INPUT;
}

/* A value needs a gradient if it depends on a trained weight or on the stage's input. */
static void mark_needs(struct pen_derivative *d) {
  const struct pen_terms *terms = d->stage->terms;
  for (uint32_t n = 0; n < terms->count; n++)
    if (terms->term[n].kind >= PEN_OP_COUNT)
      d->needs[pen_term_output(n, 0)] = given_needs(d, &terms->term[n]);
  for (size_t n = 0; n < d->stage->forward_count; n++) {
    const uint32_t forward = d->stage->forward[n];
    const struct pen_signature *signature = pen_signature_of((int)terms->term[forward].kind);
    bool needs = false;
    for (int k = 0; k < signature->input_count; k++) needs = needs || is_needed(d, forward, k);
    for (int k = signature->input_count; k < signature->operand_count; k++)
      d->needs[pen_term_output(forward, k)] = needs;
  }
}

static uint32_t tensor_rank_count(const struct pen_derivative *d) {
  return pen_group_size(d->stage->context->plan, PEN_TENSOR);
}

/* The tensor that holds what the stage is given; null: the value is no such. */
static const struct pen_tensor *given_tensor(const struct pen_derivative *d, uint32_t value) {
  const struct pen_rank_context *b = d->stage->context;
  const struct pen_stage *stage = &b->profile->stages[d->stage->stage];
  switch (d->stage->terms->term[pen_term_of_value(value)].kind) {
    case PEN_TERM_INPUT: return &b->tables->tensors[stage->input];
    case PEN_TERM_OUTPUT_GRADIENT: return &b->tables->tensors[stage->output_gradient];
    default: return NULL;
  }
}

static uint8_t dtype_of(const struct pen_derivative *d, uint32_t value) {
  const struct pen_term *term = &d->stage->terms->term[pen_term_of_value(value)];
  const struct pen_tensor *given = given_tensor(d, value);
  if (given) return given->dtype;
  const struct pen_signature *signature = pen_signature_of((int)term->kind);
  return pen_operand_dtype(&signature->operand[pen_operand_of_value(value)], (int)term->dtype);
}

static uint64_t elements_of(const struct pen_derivative *d, uint32_t value) {
  const struct pen_term *term = &d->stage->terms->term[pen_term_of_value(value)];
  const struct pen_tensor *given = given_tensor(d, value);
  if (given) return given->bytes / pen_dtype_bytes(given->dtype);
  if (term->kind == PEN_TERM_WEIGHT) return d->stage->context->plan->weights[term->dim[0]].count;
  const struct pen_signature *signature = pen_signature_of((int)term->kind);
  return pen_operand_elements(&signature->operand[pen_operand_of_value(value)], term->dim);
}

/* ---- splits ---- */

/* Where the gradient so far of operand k of a forward op is. */
static uint32_t *gradient_of(struct pen_derivative *d, uint32_t forward, int k) {
  const uint32_t value = operand_value(d, forward, k);
  const uint32_t split =
      pen_term_shares(d->stage, forward, k) ? pen_term_split(d->stage, forward) : PEN_NONE;
  return split >= d->splits ? &d->gradient[value] : &d->of_split[value * d->splits + split];
}

/* A value of the tensor rank of that number, or of its own shard of the tokens if it is the
 * gradient of what `gathered`, or null, makes; 0: it is absent. */
static uint32_t part_of_rank(const struct pen_derivative *d, uint32_t value, uint32_t tensor_rank,
                             const struct pen_term *gathered) {
  if (!value) return 0;
  struct pen_term term = {.kind = PEN_OP_ALL_GATHER_PARTIAL,
                          .dtype = dtype_of(d, value),
                          .dim = {(int64_t)elements_of(d, value), tensor_rank},
                          .input = {value}};
  if (gathered) {
    term.kind = PEN_OP_ALL_TO_ALL_PARTIAL;
    memcpy(term.dim, gathered->dim, 3 * sizeof *term.dim);
    term.dim[3] = tensor_rank;
  }
  return pen_term_output(pen_term_add(d->stage->terms, &term), 1);
}

/* The sum of partial sums, added pairwise; 0: one is absent. */
static uint32_t add_pairwise(const struct pen_derivative *d, const uint32_t *value,
                             uint32_t count) {
  if (count == 1 || !value[0]) return value[0];
  const uint32_t one = add_pairwise(d, value, count / 2),
                 other = add_pairwise(d, value + count / 2, count / 2);
  if (!one || !other) return 0;
  const struct pen_term term = {
      .kind = PEN_OP_ADD, .dim = {(int64_t)elements_of(d, one)}, .input = {one, other}};
  return pen_term_output(pen_term_add(d->stage->terms, &term), 2);
}

/* The halves of the sum over all splits, of which these are the tensor rank's; other tensor ranks
 * have the rest. `gathered`: as above. False: one is absent. */
static bool add_halves(const struct pen_derivative *d, const uint32_t *split,
                       const struct pen_term *gathered, uint32_t half[2]) {
  const uint32_t tensor_ranks = tensor_rank_count(d), own = d->splits / tensor_ranks;
  uint32_t *all = pen_new(tensor_ranks + own, sizeof *all), count = own;
  memcpy(all, split, own * sizeof *all);
  if (tensor_ranks > 1) {
    const uint32_t sum = add_pairwise(d, split, own);
    for (uint32_t m = 0; m < tensor_ranks; m++) all[m] = part_of_rank(d, sum, m, gathered);
    count = tensor_ranks;
  }
  for (uint32_t h = 0; h < 2; h++) half[h] = add_pairwise(d, all + h * (count / 2), count / 2);
  pen_free(all);
  return half[0] && half[1];
}

/* The gradient of an activation that all splits read: the halves' sums, and what other ops add. */
static void sum_splits(struct pen_derivative *d, uint32_t value) {
  const struct pen_rank_context *b = d->stage->context;
  if (d->splits == 1 || !value || !d->of_split[value * d->splits]) return;
  const uint32_t *split = &d->of_split[value * d->splits];
  const struct pen_term made = d->stage->terms->term[pen_term_of_value(value)],
                        *gathered = made.kind == PEN_OP_ALL_GATHER_SEQUENCE ? &made : NULL;
  uint32_t halves[2];
  if (!add_halves(d, split, gathered, halves))
    return; /* then the weight of a split has no gradient */
  const int64_t all = d->stage->terms->term[pen_term_of_value(split[0])].dim[0],
                rows = all / (gathered ? tensor_rank_count(d) : 1);
  const struct pen_term term = {.kind = PEN_OP_SUM_PARTIALS,
                                .dtype = b->plan->dtype,
                                .dim = {rows, (int64_t)elements_of(d, halves[0]) / rows, all,
                                        b->profile->sequence, d->splits},
                                .input = {halves[0], halves[1], d->gradient[value]}};
  d->gradient[value] = pen_term_output(pen_term_add(d->stage->terms, &term), 4);
}

/* What the ops of all splits make for a weight's gradient is added once, by the rule of split 0,
 * the last one here. Returns whether the rule has to wait. */
static bool waits_for_splits(struct pen_derivative *d, const struct pen_gradient_rule *rule,
                             uint32_t forward) {
  const int shared = rule->word[rule->input_count].operand;
  if (!rule->weight_part || !pen_term_shares(d->stage, forward, shared)) return false;
  uint32_t *own = gradient_of(d, forward, shared);
  *own = d->private_value[shared];
  if (pen_term_split(d->stage, forward) > 0) return true;
  uint32_t halves[2];
  d->private_value[shared] = add_halves(d, own, NULL, halves) ? add_pairwise(d, halves, 2) : 0;
  return false;
}

/* ---- tokens that the tensor ranks share ---- */

/* What an op with these dims reads as an operand of so many elements: all tokens of a value, of
 * which the tensor rank has its own. */
static uint32_t with_all_tokens(const struct pen_derivative *d, const struct pen_term *reader,
                                uint32_t value, uint64_t elements) {
  const int64_t tensor_ranks = tensor_rank_count(d);
  if (tensor_ranks == 1 || !value || elements_of(d, value) * (uint64_t)tensor_ranks != elements)
    return value;
  const struct pen_signature *signature = pen_signature_of((int)reader->kind);
  const int rows = pen_signature_dim(signature, "rows"),
            batch = pen_signature_dim(signature, "batch");
  const int64_t sequences = batch >= 0  ? reader->dim[batch]
                            : rows >= 0 ? reader->dim[rows] / d->stage->context->profile->sequence
                                        : 0;
  if (sequences <= 0) return value;
  const struct pen_term term = {
      .kind = PEN_OP_ALL_GATHER_SEQUENCE,
      .dtype = dtype_of(d, value),
      .dim = {sequences, (int64_t)elements_of(d, value) / sequences, tensor_ranks},
      .input = {value}};
  return pen_term_output(pen_term_add(d->stage->terms, &term), 1);
}

/* What a forward op makes for a weight's gradient: of the runs of all tensor ranks, if it has its
 * own.
 */
static uint32_t sum_runs(const struct pen_derivative *d, uint32_t forward, uint32_t value) {
  const struct pen_term of = d->stage->terms->term[forward];
  const int runs = pen_signature_dim(pen_signature_of((int)of.kind), "runs");
  const uint32_t tensor_ranks = tensor_rank_count(d);
  if (tensor_ranks == 1 || runs < 0 || of.dim[runs] == 0 || of.dim[runs] == d->splits || !value)
    return value;
  uint32_t *all = pen_new(tensor_ranks, sizeof *all);
  for (uint32_t m = 0; m < tensor_ranks; m++) all[m] = part_of_rank(d, value, m, NULL);
  const uint32_t sum = add_pairwise(d, all, tensor_ranks);
  pen_free(all);
  return sum;
}

/* ---- rules ---- */

static uint32_t input_of(struct pen_derivative *d, uint32_t forward,
                         const struct pen_gradient_rule *rule, size_t n) {
  const struct pen_rule_operand *word = &rule->word[n];
  if (word->mark == '*') return d->private_value[word->operand];
  const int k = word->mark == '+' ? rule->word[rule->input_count].operand : word->operand;
  uint32_t value = operand_value(d, forward, k);
  if (word->mark == '+') return value && d->needs[value] ? *gradient_of(d, forward, k) : 0;
  return word->mark == '\'' && value ? d->gradient[value] : value;
}

/* The head of a tied weight has a gradient of its own: every user but the embedding, on the
 * weight's rank, is the head. */
static uint32_t accumulator_of(const struct pen_derivative *d, const struct pen_term *forward,
                               uint32_t weight) {
  const struct pen_rank_context *b = d->stage->context;
  const bool embeds = forward->kind == PEN_OP_EMBEDDING && b->plan->weights[weight].rank == b->rank;
  for (uint32_t tie = 0; tie < b->plan->tie_count; tie++)
    if (b->plan->ties[tie].weight == weight && !embeds) return b->plan->weight_count + tie;
  return weight;
}

/* Of operand k. `added`: to the sum so far. Else ADD adds it, but for splits, of which there must
 * be none. */
static void set_gradient(struct pen_derivative *d, uint32_t forward, int k, uint32_t made,
                         bool added) {
  uint32_t *gradient = gradient_of(d, forward, k);
  const bool is_sum = *gradient && !added;
  if (!made) return; /* the output's gradient is absent */
  if (is_sum && gradient != &d->gradient[operand_value(d, forward, k)]) d->lost = forward + 1;
  const struct pen_term sum = {.kind = PEN_OP_ADD,
                               .dtype = d->stage->context->plan->dtype,
                               .dim = {is_sum ? (int64_t)elements_of(d, made) : 0},
                               .input = {*gradient, made}};
  *gradient = is_sum ? pen_term_output(pen_term_add(d->stage->terms, &sum), 2) : made;
}

/* Does the first output of a rule contain the sum so far? */
static bool has_addend(const struct pen_gradient_rule *rule) {
  for (size_t n = 0; n < rule->input_count; n++)
    if (rule->word[n].mark == '+') return true;
  return false;
}

/* Lists what an op adds to the gradient of a weight. */
static void add_part(struct pen_derivative *d, size_t index, uint32_t value, bool in_w) {
  PEN_RESERVE(d->part, d->part_count + 1);
  d->part[d->part_count++] = (struct pen_gradient_part){value, 0};
  if (d->last[index])
    d->part[d->last[index] - 1].next = d->part_count;
  else
    d->first[index] = d->part_count;
  d->last[index] = d->part_count;
  d->users[index]++;
  d->has_w_user[index] = d->has_w_user[index] || in_w;
}

/* Word n of a rule is an output of its op. */
static void store_output(struct pen_derivative *d, uint32_t forward,
                         const struct pen_gradient_rule *rule, size_t n, uint32_t made) {
  const struct pen_terms *terms = d->stage->terms;
  const struct pen_rule_operand *word = &rule->word[n];
  const bool accumulates = pen_signature_of(rule->backward)->operand[n].accumulates;
  uint32_t target = operand_value(d, forward, word->operand);
  if (word->mark == '*') {
    d->private_value[word->operand] = made;
  } else if (!accumulates) {
    if (target)
      set_gradient(d, forward, word->operand, made, n == rule->input_count && has_addend(rule));
  } else if (target && d->needs[target] &&
             terms->term[pen_term_of_value(target)].kind == PEN_TERM_WEIGHT) {
    uint32_t weight = (uint32_t)terms->term[pen_term_of_value(target)].dim[0];
    add_part(
        d, pen_gradient_index(d->stage->context, accumulator_of(d, &terms->term[forward], weight)),
        made, rule->weight_part);
  }
}

static void apply_rule(struct pen_derivative *d, const struct pen_gradient_rule *rule,
                       uint32_t forward) {
  bool any = false;
  for (size_t n = rule->input_count; n < rule->count; n++)
    any = any || is_needed(d, forward, rule->word[n].operand);
  if (!any || waits_for_splits(d, rule, forward)) return;
  const struct pen_signature *signature = pen_signature_of(rule->backward);
  const struct pen_term *of = &d->stage->terms->term[forward];
  struct pen_term term = {.kind = (uint32_t)rule->backward,
                          .dtype = pen_signature_dtype(signature, d->stage->context->plan->dtype)};
  if (term.dtype == PEN_BF16 && signature->operand[rule->input_count].partial &&
      pen_term_shares(d->stage, forward, rule->word[rule->input_count].operand))
    term.dtype = PEN_BF16_PARTIAL;
  for (int n = 0; n < signature->dim_count; n++) term.dim[n] = pen_rule_dim(rule, n, of->dim);
  for (int n = 0; n < signature->real_count; n++) term.real[n] = of->real[rule->real[n]];
  for (size_t n = 0; n < rule->input_count; n++) {
    const uint32_t value = input_of(d, forward, rule, n);
    const uint64_t elements = pen_operand_elements(&signature->operand[n], term.dim);
    term.input[n] = rule->word[n].mark == '*' ? sum_runs(d, forward, value)
                                              : with_all_tokens(d, &term, value, elements);
  }
  uint32_t made = pen_term_add(d->stage->terms, &term);
  for (size_t n = rule->input_count; n < rule->count; n++)
    store_output(d, forward, rule, n, pen_term_output(made, (int)n));
}

static void pass_gradients(struct pen_derivative *d, uint32_t forward) {
  size_t count;
  const struct pen_pass_rule *rules = pen_pass_rules(&count);
  for (size_t n = 0; n < count; n++)
    if (rules[n].forward == (int)d->stage->terms->term[forward].kind &&
        pen_op_tensor_rank(rules[n].forward, d->stage->terms->term[forward].dim) == 0 &&
        is_needed(d, forward, rules[n].input))
      set_gradient(d, forward, rules[n].input,
                   d->gradient[operand_value(d, forward, rules[n].output)], false);
}

static void derive_op(struct pen_derivative *d, uint32_t forward) {
  const int kind = (int)d->stage->terms->term[forward].kind;
  const struct pen_signature *signature = pen_signature_of(kind);
  size_t count;
  const struct pen_gradient_rule *rules = pen_gradient_rules(&count);
  bool needs = false;
  for (int k = signature->input_count; k < signature->operand_count; k++)
    needs = needs || is_needed(d, forward, k);
  if (!needs) return;
  for (int k = signature->input_count; k < signature->operand_count; k++)
    sum_splits(d, operand_value(d, forward, k));
  pass_gradients(d, forward);
  for (int weight_part = 0; weight_part < 2; weight_part++)
    for (size_t n = 0; n < count; n++)
      if (rules[n].forward == kind && rules[n].weight_part == weight_part)
        apply_rule(d, &rules[n], forward);
}

/* ---- a stage ---- */

/* The gradient that a loss computes: of what it reads, the output named "d" and the input's name.
 * The losses of splits are a sum, and may each give a part of the gradient; several losses are a
 * sum, too. */
static void set_loss_gradient(struct pen_derivative *d, uint32_t value) {
  const struct pen_terms *terms = d->stage->terms;
  const uint32_t loss = value ? pen_term_of_value(value) : 0;
  if (!value || terms->term[loss].kind >= PEN_OP_COUNT) return;
  const struct pen_signature *signature = pen_signature_of((int)terms->term[loss].kind);
  if (terms->term[loss].kind == PEN_OP_ALL_GATHER_PARTIAL && terms->term[loss].dim[1] == 0)
    set_loss_gradient(d, terms->term[loss].input[0]);
  const bool adds =
      terms->term[loss].kind == PEN_OP_SUM_ADD || terms->term[loss].kind == PEN_OP_ADD_LOSS;
  for (int k = 0; adds && k < signature->input_count; k++)
    if (strcmp(signature->operand[k].name, "share") != 0)
      set_loss_gradient(d, terms->term[loss].input[k]);
  for (int k = signature->input_count; k < signature->operand_count; k++) {
    const int input = pen_loss_gradient_of((int)terms->term[loss].kind, k);
    if (input < 0 || !terms->term[loss].input[input]) continue;
    uint32_t *gradient = gradient_of(d, loss, input);
    if (*gradient) d->lost = loss + 1;
    *gradient = pen_term_output(loss, k);
  }
}

/* The gradients that are known before the first op: of what the loss reads; of the stage's output.
 */
static void set_first_gradients(struct pen_derivative *d) {
  const struct pen_stage_terms *s = d->stage;
  const struct pen_stage *stage = &s->context->profile->stages[s->stage];
  uint32_t output = stage->output == PEN_NONE ? 0 : pen_stage_value(s, stage->output);
  if (output) d->gradient[output] = pen_stage_value(s, stage->output_gradient);
  set_loss_gradient(d, s->loss);
  for (size_t n = 0; n < s->forward_count; n++)
    if (s->terms->term[s->forward[n]].kind == PEN_OP_ROUTER_LOSS)
      set_loss_gradient(
          d, pen_term_output(s->forward[n], pen_signature_of(PEN_OP_ROUTER_LOSS)->input_count));
}

void pen_derivative_open(struct pen_derivative *d, const struct pen_stage_terms *stage) {
  const struct pen_rank_context *b = stage->context;
  const struct pen_stage *tables = &b->profile->stages[stage->stage];
  /* What the neighbours give is a value, also if no op has read it. */
  if (tables->output_gradient != PEN_NONE) pen_stage_value(stage, tables->output_gradient);
  if (tables->input != PEN_NONE) pen_stage_value(stage, tables->input);
  const size_t values = pen_terms_past_value(stage->terms),
               gradients = (size_t)b->own_weight_count + b->plan->tie_count + 1;
  *d = (struct pen_derivative){.stage = stage,
                               .gradient = pen_new(values, sizeof *d->gradient),
                               .splits = b->split_count,
                               .of_split = pen_new(values * b->split_count, sizeof *d->of_split),
                               .needs = pen_new(values, sizeof *d->needs),
                               .first = pen_new(gradients, sizeof *d->first),
                               .last = pen_new(gradients, sizeof *d->last),
                               .users = pen_new(gradients, sizeof *d->users),
                               .has_w_user = pen_new(gradients, sizeof *d->has_w_user)};
  mark_needs(d);
  set_first_gradients(d);
  for (size_t n = stage->forward_count; n-- > 0;) derive_op(d, stage->forward[n]);
  if (tables->input != PEN_NONE) sum_splits(d, pen_stage_value(stage, tables->input));
}

void pen_derivative_close(struct pen_derivative *d) {
  pen_free(d->gradient);
  pen_free(d->of_split);
  pen_free(d->needs);
  pen_free(d->first);
  pen_free(d->last);
  pen_free(d->users);
  pen_free(d->has_w_user);
  pen_free(d->part);
}

uint32_t pen_derivative_input(const struct pen_derivative *d) {
  const struct pen_stage_terms *s = d->stage;
  const uint32_t input = s->context->profile->stages[s->stage].input;
  return d->gradient[pen_stage_value(s, input)];
}
