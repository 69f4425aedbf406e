/* backward.c: derives the backward programs from the forward ops, by the gradient rules of ops.def.
 *
 * The forward ops are processed in reverse order. For each op, the PEN_PASS rules pass the gradient
 * of an output to an input unchanged, the I rules compute input gradients, and the W rules
 * accumulate weight gradients. The gradient of a value with several readers is a sum: each next op
 * that contributes gets the sum so far as its addend ("+" in the rule); what a rule without one, or
 * PEN_PASS, gives is added by ADD. So readers are added in reverse order. Gradients that are not
 * needed (of inputs of the model and of frozen weights) are not computed. The ops of I and W go to
 * two lists; for B both go to one list, so that each W op directly follows its I op.
 *
 * A whole value that the ops of all splits read (place.h) has such a sum for each split. They are
 * added pairwise, in f32, before the first op that needs the gradient; or before W adds it, of a
 * gain.
 *
 * Where tensor ranks share the tokens (sequence.h), the gradient of a value that has all tokens is
 * that of the tokens which the rank holds. An op that reads all of them, of a gradient or of a
 * value, gathers them in its own list. Sums over tokens are added up before W adds them.
 *
 * In a segment that is recomputed (units.c, recompute.c) the copies of the forward ops are
 * processed; in I and B they come before the ops of their gradients, and so does a fused loss
 * (fused_loss.c) in any case. */
#include <string.h>

#include "gen/model/append.h"
#include "gen/model/backward.h"

#include "gen/model/fused_loss.h"
#include "gen/model/gradient_rules.h"
#include "gen/model/splits.h"
#include "gen/model/place.h"
#include "gen/model/recompute.h"
#include "gen/model/sequence.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/sort.h"
#include "runtime/plan/plan.h"

/* The state of the pass: the gradient so far of each value, the private tensors (`x*`) of the
 * current op, and the lists for new ops. */
struct backward_pass {
  struct pen_graph *graph;
  uint32_t *gradient; /* [value] */
  uint32_t *of_split; /* [value][split]: the sum of a split's gradients so far; null: no splits */
  uint32_t private_value[PEN_OPERANDS_MAX];
  uint32_t *source;         /* [value]: the value whose tokens it has gathered; PEN_NONE: none */
  size_t value_count;       /* of `source` */
  struct pen_keyed *copied; /* the values that have copies, by the segments of these */
  size_t copied_count;      /* in segments whose ops are still to be appended */
  struct pen_op_list *input_list, *weight_list;
  const char *suffix; /* of the names of values: "" or "(B)"; those of copies have it already */
};

/* Where the gradient so far of operand k of an op is: apart for each split, if the ops of all
 * splits read it. */
static uint32_t *gradient_of(struct backward_pass *pass, const struct pen_op *forward, int k) {
  const uint32_t value = forward->operand[k], splits = pass->graph->own_splits;
  if (!pass->of_split || !pen_op_shares(pass->graph, forward, (uint32_t)k))
    return &pass->gradient[value];
  return &pass->of_split[value * splits + pen_split_of_op(pass->graph, forward)];
}

/* What an op gives for the gradient of operand k of a forward op, besides the sum so far. */
static void add_gradient(struct backward_pass *pass, const struct pen_op *forward, int k,
                         uint32_t given) {
  struct pen_graph *graph = pass->graph;
  uint32_t *sum = gradient_of(pass, forward, k);
  const struct pen_value *value = &graph->value[forward->operand[k]];
  if (*sum == PEN_NONE) {
    *sum = given;
    return;
  }
  const char *name = pen_text("%s'%s", value->name, value->is_copy ? "" : pass->suffix);
  const struct pen_op *add =
      pen_append_with_outputs(graph, pass->input_list, PEN_OP_ADD, name, (uint32_t[]){*sum, given},
                              (int64_t[]){(int64_t)value->elements}, 1, PEN_ROLE_ACTIVATION);
  *sum = add->operand[2];
}

/* Appends the sum of the gradients of all splits, except the last addition; false: there are none.
 */
static bool add_splits(struct backward_pass *pass, struct pen_op_list *list, uint32_t value,
                       struct pen_pairwise *sum) {
  const uint32_t splits = pass->graph->own_splits;
  *sum = (struct pen_pairwise){.kind = PEN_OP_ADD,
                               .by_tokens = pass->graph->value[value].role != PEN_ROLE_WEIGHT,
                               .count = pass->graph->splits};
  if (!pass->of_split || pass->of_split[value * splits] == PEN_NONE) return false;
  const char *name = pen_text("%s'%s", pass->graph->value[value].name, pass->suffix);
  for (uint32_t k = 0; k < splits; k++) {
    uint32_t *own = &pass->of_split[value * splits + k];
    if (*own == PEN_NONE)
      pen_stop(PEN_EXIT_INTERNAL, "derive: %s has no gradient from split %u", name, k);
    pen_pairwise_add(pass->graph, list, sum, *own, name);
    *own = PEN_NONE;
  }
  return true;
}

/* The gradient of a value that splits read is the sum of theirs, and of the other ops'. */
static void sum_splits(struct backward_pass *pass, uint32_t value) {
  struct pen_graph *graph = pass->graph;
  struct pen_pairwise sum;
  if (value == PEN_NONE || !add_splits(pass, pass->input_list, value, &sum)) return;
  pass->gradient[value] = pen_pairwise_round(
      graph, pass->input_list,
      pen_text("%s'%s", graph->value[value].name, graph->value[value].is_copy ? "" : pass->suffix),
      &sum, pass->gradient[value], PEN_NONE, (int64_t)graph->value[value].elements / graph->rows);
}

/* Whether an output of a rule is needed. */
static bool is_needed(const struct backward_pass *pass, const struct pen_op *forward,
                      const struct pen_rule_operand *word) {
  uint32_t value = forward->operand[word->operand];
  return value != PEN_NONE && pass->graph->value[value].needs_gradient;
}

/* An input of a backward op: a forward value, a gradient, a private tensor, or the sum so far. */
static uint32_t input_of(struct backward_pass *pass, const struct pen_op *forward,
                         const struct pen_rule_operand *word,
                         const struct pen_rule_operand *first_output) {
  if (word->mark == '+') {
    uint32_t target = forward->operand[first_output->operand];
    return pass->graph->value[target].needs_gradient
               ? *gradient_of(pass, forward, first_output->operand)
               : PEN_NONE;
  }
  if (word->mark == '*') return pass->private_value[word->operand];
  uint32_t value = forward->operand[word->operand];
  return word->mark == '\'' ? pass->gradient[value] : value;
}

/* What an op of the list reads as an operand of so many elements: all tokens of a value, if the
 * rank holds some. */
static uint32_t with_all_tokens(struct backward_pass *pass, struct pen_op_list *list,
                                uint32_t value, uint64_t elements) {
  struct pen_graph *graph = pass->graph;
  if (value == PEN_NONE || graph->token_ranks == 1) return value;
  const uint32_t source = value < pass->value_count ? pass->source[value] : PEN_NONE;
  if (source != PEN_NONE) return pen_all_tokens(graph, list, source);
  return graph->value[value].elements == elements ? value : pen_all_tokens(graph, list, value);
}

/* A private tensor of an op: where its sums are of the runs that the rank holds, those of all. */
static uint32_t sum_tokens(struct backward_pass *pass, const struct pen_op *forward,
                           struct pen_op_list *list, uint32_t value) {
  const int runs = pen_signature_dim(pen_signature_of(forward->kind), "runs");
  if (pass->graph->token_ranks == 1 || runs < 0 || forward->dim[runs] == 0 ||
      forward->dim[runs] == pass->graph->splits)
    return value;
  return pen_sum_over_tensor_ranks(pass->graph, list, value, pass->graph->value[value].name);
}

/* An output of a backward op: a new gradient value, a private tensor, or an accumulator. */
static uint32_t output_of(struct backward_pass *pass, const struct pen_op *forward,
                          const struct pen_rule_operand *word, const struct pen_operand *operand,
                          const struct pen_op *backward) {
  struct pen_graph *graph = pass->graph;
  uint32_t target = forward->operand[word->operand];
  if (target == PEN_NONE) return PEN_NONE; /* of an absent operand */
  if (operand->accumulates) return graph->value[target].gradient;
  const struct pen_value *value = &graph->value[target];
  const char *name = pen_text("%s%s%s", value->name, word->mark == '*' ? "*" : "'",
                              value->is_copy ? "" : pass->suffix);
  uint32_t made =
      pen_graph_value(graph, name, pen_operand_dtype(operand, backward->dtype), PEN_ROLE_ACTIVATION,
                      pen_operand_elements(operand, backward->dim));
  if (word->mark == '*') pass->private_value[word->operand] = made;
  pen_place_as(graph, made, target);
  if (pen_op_shares(graph, forward, (uint32_t)word->operand))
    graph->value[made].place[PEN_TENSOR] = PEN_PARTIAL;
  return made;
}

/* What the ops of all splits make for the gradient of a weight is added once, by the rule of the
 * last of them in this order, split 0. Returns whether this rule has to wait for that. */
static bool waits_for_splits(struct backward_pass *pass, const struct pen_gradient_rule *rule,
                             const struct pen_op *forward) {
  const int shared = rule->word[rule->input_count].operand;
  if (!rule->weight_part || !pen_op_shares(pass->graph, forward, (uint32_t)shared)) return false;
  const uint32_t weight = forward->operand[shared];
  struct pen_pairwise sum;
  *gradient_of(pass, forward, shared) = pass->private_value[shared];
  if (pen_split_of_op(pass->graph, forward) > 0) return true;
  add_splits(pass, pass->weight_list, weight, &sum);
  pass->private_value[shared] = pen_pairwise_total(
      pass->graph, pass->weight_list, &sum,
      pen_text("%s*%s", pass->graph->value[weight].name, pass->suffix), PEN_ROLE_ACTIVATION);
  return false;
}

/* Adds the gradients that a backward op makes to the sums so far, of which the first may have one
 * as its addend. */
static void store_gradients(struct backward_pass *pass, const struct pen_gradient_rule *rule,
                            const struct pen_op *forward, const struct pen_op *backward) {
  bool has_addend = false;
  for (size_t i = 0; i < rule->input_count; i++)
    has_addend = has_addend || rule->word[i].mark == '+';
  for (size_t i = rule->input_count; i < rule->count; i++) {
    const struct pen_rule_operand *word = &rule->word[i];
    const bool accumulates = pen_signature_of(rule->backward)->operand[i].accumulates;
    if (word->mark != '\'' || accumulates || backward->operand[i] == PEN_NONE) continue;
    if (has_addend && i == rule->input_count)
      *gradient_of(pass, forward, word->operand) = backward->operand[i];
    else
      add_gradient(pass, forward, word->operand, backward->operand[i]);
  }
}

static void apply_rule(struct backward_pass *pass, const struct pen_gradient_rule *rule,
                       const struct pen_op *forward) {
  const size_t input_count = rule->input_count, count = rule->count;
  bool any = false;
  for (size_t i = input_count; i < count; i++)
    any = any || is_needed(pass, forward, &rule->word[i]);
  if (!any || waits_for_splits(pass, rule, forward)) return;
  const struct pen_signature *signature = pen_signature_of(rule->backward);
  struct pen_op op = {.kind = (uint16_t)rule->backward,
                      .dtype = pen_rule_dtype(rule, forward->dtype, pass->graph->dtype),
                      .workspace = PEN_NONE};
  if (op.dtype == PEN_BF16 && signature->operand[input_count].partial &&
      pen_op_shares(pass->graph, forward, (uint32_t)rule->word[input_count].operand))
    op.dtype = PEN_BF16_PARTIAL;
  for (size_t i = 0; i < PEN_OPERANDS_MAX; i++) op.operand[i] = PEN_NONE;
  for (int i = 0; i < signature->dim_count; i++) op.dim[i] = pen_rule_dim(rule, i, forward->dim);
  for (int i = 0; i < signature->real_count; i++) op.real[i] = forward->real[rule->real[i]];
  struct pen_op_list *list = rule->weight_part ? pass->weight_list : pass->input_list;
  for (size_t i = 0; i < input_count; i++) {
    const uint32_t input = input_of(pass, forward, &rule->word[i], &rule->word[input_count]);
    op.operand[i] = rule->word[i].mark == '*'
                        ? sum_tokens(pass, forward, list, input)
                        : with_all_tokens(pass, list, input,
                                          pen_operand_elements(&signature->operand[i], op.dim));
  }
  for (size_t i = input_count; i < count; i++)
    op.operand[i] = output_of(pass, forward, &rule->word[i], &signature->operand[i], &op);
  *pen_op_append(list, rule->backward) = op;
  store_gradients(pass, rule, forward, &op);
}

/* Passes gradients through unchanged, by the PEN_PASS rules. */
static void pass_through(struct backward_pass *pass, const struct pen_op *forward) {
  size_t count;
  const struct pen_pass_rule *rules = pen_pass_rules(&count);
  for (size_t i = 0; i < count; i++) {
    if (rules[i].forward != forward->kind || pen_op_tensor_rank(forward->kind, forward->dim) > 0)
      continue;
    uint32_t input = forward->operand[rules[i].input], output = forward->operand[rules[i].output];
    if (input == PEN_NONE || !pass->graph->value[input].needs_gradient) continue;
    if (pass->gradient[output] != PEN_NONE)
      add_gradient(pass, forward, rules[i].input, pass->gradient[output]);
  }
}

/* Sums the splits' gradients of the outputs of an op, before the op's own. */
static void sum_output_splits(struct backward_pass *pass, const struct pen_op *forward) {
  const struct pen_signature *signature = pen_signature_of(forward->kind);
  for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
    sum_splits(pass, forward->operand[k]);
}

static bool output_needs_gradient(const struct pen_graph *graph, const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (uint32_t i = signature->input_count; i < signature->operand_count; i++)
    if (op->operand[i] != PEN_NONE && graph->value[op->operand[i]].needs_gradient) return true;
  return false;
}

/* The gradients that are known before the first op: of the stage's output, and of what a loss
 * computes the gradient of. */
static uint32_t *first_gradients(const struct pen_graph *graph,
                                 const struct pen_forwards *forwards) {
  uint32_t *gradient = pen_new(graph->value_count + 1, sizeof *gradient);
  for (size_t i = 0; i < graph->value_count; i++) gradient[i] = PEN_NONE;
  for (uint32_t i = 0; i < forwards->value_count; i++) {
    const struct pen_value *value = &graph->value[i];
    if (value->role == PEN_ROLE_ACTIVATION && value->gradient != PEN_NONE)
      gradient[i] = forwards->copy_of[value->gradient];
  }
  if (graph->output != PEN_NONE) gradient[graph->output] = graph->output_gradient;
  return gradient;
}

/* The same of each split: of what the fused losses of all splits read. */
static uint32_t *first_split_gradients(const struct pen_graph *graph,
                                       const struct pen_forwards *forwards) {
  if (graph->splits == 1) return NULL;
  const size_t count = (graph->value_count + 1) * graph->own_splits;
  uint32_t *of_split = pen_new(count, sizeof *of_split);
  for (size_t n = 0; n < count; n++) of_split[n] = PEN_NONE;
  for (size_t i = graph->forward.count - graph->fused_op_count; i < graph->forward.count; i++) {
    const struct pen_op *op = &graph->forward.op[i];
    const int last = pen_signature_of(op->kind)->operand_count - 1;
    if (!pen_fused_loss_of(op->kind)) continue;
    const uint32_t x = op->operand[pen_loss_gradient_of(op->kind, last)];
    of_split[x * graph->own_splits + pen_split_of_op(graph, op)] =
        forwards->copy_of[op->operand[last]];
  }
  return of_split;
}

/* Lists the values that have copies. */
static void list_copied(struct backward_pass *pass, const struct pen_forwards *forwards) {
  pass->copied = pen_new(forwards->value_count + 1, sizeof *pass->copied);
  for (uint32_t v = 0; v < forwards->value_count; v++)
    if (forwards->segment_of[v] != PEN_NONE && forwards->copy_of[v] != v)
      pass->copied[pass->copied_count++] = (struct pen_keyed){forwards->segment_of[v], v};
  pen_sort(pass->copied, pass->copied_count);
}

/* Within a segment, the last that is left, the copies of its values stand for them. */
static void enter_segment(struct backward_pass *pass, const struct pen_forwards *forwards,
                          uint32_t segment) {
  const size_t splits = pass->graph->own_splits;
  while (pass->copied_count && pass->copied[pass->copied_count - 1].key == segment) {
    const uint32_t v = pass->copied[--pass->copied_count].index, copy = forwards->copy_of[v];
    if (pass->gradient[v] != PEN_NONE) pass->gradient[copy] = pass->gradient[v];
    if (pass->of_split)
      memcpy(&pass->of_split[copy * splits], &pass->of_split[v * splits],
             splits * sizeof *pass->of_split);
  }
}

/* Appends the backward ops of the forward ops of a segment to the lists of the pass. */
static void append_gradients(struct backward_pass *pass, const struct pen_forwards *forwards,
                             const struct pen_segment *segment) {
  size_t count;
  const struct pen_gradient_rule *rules = pen_gradient_rules(&count);
  for (size_t i = segment->past; i-- > segment->first;) {
    const struct pen_op forward = forwards->op.op[i];
    if (!output_needs_gradient(pass->graph, &forward)) continue;
    sum_output_splits(pass, &forward);
    pass_through(pass, &forward);
    for (size_t part = 0; part < 2; part++)
      for (size_t r = 0; r < count; r++)
        if (rules[r].forward == forward.kind && rules[r].weight_part == (part == 1))
          apply_rule(pass, &rules[r], &forward);
  }
}

/* Marks the values that recomputed ops have to make although no op of their segment reads them: the
 * gradients that are known before the first op. */
static void want_first_gradients(const struct backward_pass *pass, bool *wanted) {
  const size_t values = pass->graph->value_count, splits = pass->graph->own_splits;
  for (size_t v = 0; v < values; v++)
    if (pass->gradient[v] != PEN_NONE) wanted[pass->gradient[v]] = true;
  for (size_t n = 0; pass->of_split && n < values * splits; n++)
    if (pass->of_split[n] != PEN_NONE) wanted[pass->of_split[n]] = true;
}

/* The sources of the values that are gathered in the forward. */
static void find_sources(struct backward_pass *pass, const struct pen_forwards *forwards) {
  pass->value_count = pass->graph->value_count;
  pass->source = pen_new(pass->value_count + 1, sizeof *pass->source);
  for (size_t v = 0; v < pass->value_count; v++) pass->source[v] = PEN_NONE;
  for (size_t i = 0; i < forwards->op.count; i++) {
    const struct pen_op *op = &forwards->op.op[i];
    const uint32_t source = pen_tokens_source(op, op->operand[1]);
    if (source != PEN_NONE) pass->source[op->operand[1]] = source;
  }
}

/* Appends the backward of a stage to two programs: I and W, or both are B. Segments come in reverse
 * order, each with what it recomputes before it. */
static void append_backward_ops(struct pen_graph *graph, struct pen_op_list *input_list,
                                struct pen_op_list *weight_list, const char *suffix) {
  struct pen_forwards forwards = pen_recompute_copy(graph, pen_text("(again)%s", suffix));
  bool *wanted = pen_new(graph->value_count + 1, sizeof *wanted);
  struct pen_op_list of_inputs, of_weights;
  struct backward_pass pass = {.graph = graph,
                               .gradient = first_gradients(graph, &forwards),
                               .of_split = first_split_gradients(graph, &forwards),
                               .input_list = &of_inputs,
                               .weight_list = input_list == weight_list ? &of_inputs : &of_weights,
                               .suffix = suffix};
  find_sources(&pass, &forwards);
  list_copied(&pass, &forwards);
  want_first_gradients(&pass, wanted);
  for (uint32_t s = (uint32_t)forwards.segments.count; s-- > 0;) {
    const struct pen_segment *segment = &forwards.segments.segment[s];
    of_inputs = of_weights = (struct pen_op_list){0};
    enter_segment(&pass, &forwards, s);
    append_gradients(&pass, &forwards, segment);
    PEN_RESERVE(wanted, graph->value_count + 1);
    pen_recompute_join(&forwards, segment, &of_inputs, &of_weights, wanted, input_list);
    for (size_t i = 0; i < of_weights.count; i++) *pen_op_append(weight_list, 0) = of_weights.op[i];
  }
  pass.input_list = input_list;
  sum_splits(&pass, graph->input);
  if (graph->input != PEN_NONE) graph->input_gradient = pass.gradient[graph->input];
  pen_free(pass.gradient);
  pen_free(pass.of_split);
  pen_free(pass.source);
  pen_free(pass.copied);
  pen_free(wanted);
  pen_forwards_free(&forwards);
}

/* A value needs a gradient if it depends on a trained weight or on the stage's input. */
static void mark_needs(struct pen_graph *graph) {
  for (size_t i = 0; i < graph->value_count; i++) {
    struct pen_value *value = &graph->value[i];
    value->needs_gradient = value->role == PEN_ROLE_WEIGHT && value->gradient != PEN_NONE;
  }
  if (graph->input != PEN_NONE) graph->value[graph->input].needs_gradient = !graph->input_is_given;
  for (size_t i = 0; i < graph->forward.count; i++) {
    const struct pen_op *op = &graph->forward.op[i];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    bool needs = false;
    for (uint32_t k = 0; k < signature->input_count; k++)
      needs = needs || (op->operand[k] != PEN_NONE && graph->value[op->operand[k]].needs_gradient);
    for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
      if (op->operand[k] != PEN_NONE) graph->value[op->operand[k]].needs_gradient = needs;
  }
}

/* Adds a workspace value for every op that needs one, per program. */
static void add_workspaces(struct pen_graph *graph, struct pen_op_list *list, const char *name) {
  for (size_t i = 0; i < list->count; i++) {
    struct pen_op *op = &list->op[i];
    uint64_t bytes = pen_signature_workspace_bytes(
        pen_signature_of(op->kind), graph->topology->cluster_device,
        (uint32_t)graph->topology->cluster_threads_per_rank, op->dtype, op->dim);
    if (bytes)
      op->workspace = pen_graph_value(graph, pen_text("%s.workspace%u", name, (unsigned)i), PEN_F32,
                                      PEN_ROLE_ACTIVATION, (bytes + 3) / 4);
  }
}

/* ---- the pass ---- */

/* B writes the gradient of the stage's input to the same value as I: the neighbours know one
 * tensor. */
static void unify_input_gradient(struct pen_graph *graph, uint32_t wanted) {
  uint32_t made = graph->input_gradient;
  graph->input_gradient = wanted;
  struct pen_op_list *list = &graph->program[PEN_PROGRAM_B];
  for (size_t i = 0; i < list->count; i++)
    for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
      if (list->op[i].operand[k] == made) list->op[i].operand[k] = wanted;
}

static void derive_backward(struct pen_graph *graph) {
  mark_needs(graph);
  if (graph->output != PEN_NONE)
    graph->output_gradient =
        pen_graph_value(graph, "output'", graph->value[graph->output].dtype, PEN_ROLE_ACTIVATION,
                        graph->value[graph->output].elements);
  struct pen_op_list *program = graph->program, *b = &program[PEN_PROGRAM_B];
  struct pen_segments segments = pen_segments_of(graph);
  append_backward_ops(graph, &program[PEN_PROGRAM_I], &program[PEN_PROGRAM_W], "");
  uint32_t input_gradient = graph->input_gradient;
  append_backward_ops(graph, b, b, "(B)");
  if (input_gradient != PEN_NONE) unify_input_gradient(graph, input_gradient);
  pen_fused_loss_merge(b);
  program[PEN_PROGRAM_F].count -= graph->fused_op_count;
  pen_recompute_strip(graph, &segments);
}

void pen_backward(struct pen_graph *graph) {
  struct pen_op_list *forward = &graph->program[PEN_PROGRAM_F];
  for (size_t i = 0; i < graph->forward.count; i++)
    *pen_op_append(forward, 0) = graph->forward.op[i];
  if (graph->training) derive_backward(graph);
  static const char *const names[PEN_PROGRAMS] = {"F", "I", "W", "B"};
  for (size_t p = 0; p < PEN_PROGRAMS; p++) add_workspaces(graph, &graph->program[p], names[p]);
}
