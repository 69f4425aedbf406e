/* backward.c: backward programs from the forward ops, by the rules of ops.def; then where each
 * value lives and how long. (A stage that recomputes, see recompute.c, has the forward ops once
 * more at the head of its I and B, and those are what is walked. Some losses stand at the head of I
 * and B anyway, see late_loss.c.)
 *
 * Rules. The forward ops are walked backwards. For each, its PEN_PASS rows hand an output's
 * gradient to an input as it is; its I rows make input gradients, its W rows add to weight
 * gradients. When a value has several users its gradient is a sum: the next op that adds to it gets
 * the sum so far as its addend ("+" in the rule). What nobody needs (inputs of the model, frozen
 * weights) is not made. I and W go to two lists; B is the same walk with one list, so that each W
 * op stands right behind its I op.
 *
 * Lives. A value's first and last program decide its base: within one program SCRATCH; from F to I
 * SAVED_I; from F to W SAVED_W; from I to W KEPT_W. Values that meet a neighbour have bases of
 * their own. An output that may lie on an input ("@" in ops.def) takes its memory when no later op
 * reads that input. */
#include <string.h>

#include "gen/model/backward.h"

#include "gen/model/fused_loss.h"
#include "gen/model/recompute.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

struct gradient_rule {
  int forward, backward;
  bool weight_part;
  const char *operands, *dims;
};

static const struct gradient_rule rules[] = {
#define PEN_GRADIENT(forward, part, backward, operands, dims) \
  {PEN_OP_##forward, PEN_OP_##backward, #part[0] == 'W', operands, dims},
#include "kernels/ops.def"
};

struct pass_rule {
  int forward;
  const char *input, *output;
};

static const struct pass_rule pass_rules[] = {
#define PEN_PASS(forward, input, output) {PEN_OP_##forward, #input, #output},
#include "kernels/ops.def"
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The walk's state: the gradient so far of each value, the private tensors (`x*`) of the op at
 * hand, and where ops go. */
struct backward_walk {
  struct pen_graph *graph;
  uint32_t *gradient; /* [value] */
  uint32_t private_value[PEN_OPERANDS_MAX];
  struct pen_op_list *input_list, *weight_list;
  const char *suffix; /* of the names of values: "" or " (B)" */
};

/* One word of a rule's operands, `name`, `name'`, `name*` or `+`: the forward op's operand of that
 * name. */
struct rule_operand {
  int8_t operand; /* of `+`: none */
  char mark;      /* 0, '\'', '*', '+' */
};

/* A rule taken apart, once for all: whose dims and reals of the forward op the backward op gets. */
struct bound_rule {
  struct rule_operand word[PEN_OPERANDS_MAX];
  size_t input_count, count; /* of words; 0: not taken apart yet */
  int8_t dim[PEN_DIMS_MAX], real[PEN_REALS_MAX];
};

static void split(const struct gradient_rule *rule, struct bound_rule *bound) {
  const struct pen_signature *from = pen_signature_of(rule->forward);
  for (const char *text = rule->operands; *text;) {
    size_t length = strcspn(text, " ");
    if (length == 2 && strncmp(text, "->", 2) == 0) {
      bound->input_count = bound->count;
    } else if (length) {
      char last = text[length - 1], name[PEN_SIGNATURE_NAME_BYTES] = {0};
      struct rule_operand *word = &bound->word[bound->count++];
      word->mark = last == '\'' || last == '*' || last == '+' ? last : 0;
      memcpy(name, text, length - (word->mark != 0));
      word->operand = word->mark == '+' ? -1 : (int8_t)pen_signature_operand(from, name);
      if (word->mark != '+' && word->operand < 0)
        pen_stop(70, "ops.def: gradient of %s: no operand %s", from->kind, name);
    }
    text += length ? length : 1;
  }
}

/* Finds the forward op's dims by name, or by the rule's `name=name` pairs. */
static void bind_dims(const struct gradient_rule *rule, struct bound_rule *bound) {
  const struct pen_signature *from = pen_signature_of(rule->forward),
                             *to = pen_signature_of(rule->backward);
  for (int i = 0; i < to->dim_count; i++) {
    char name[PEN_SIGNATURE_NAME_BYTES];
    const char *wanted = to->dim[i], *pair = strstr(rule->dims, wanted);
    size_t bytes = strlen(wanted);
    if (pair && pair[bytes] == '=') {
      wanted = pair + bytes + 1;
      bytes = strcspn(wanted, " ");
    }
    if (bytes >= sizeof name)
      pen_stop(70, "ops.def: gradient of %s: the dim %s has too long a name", from->kind, wanted);
    memcpy(name, wanted, bytes);
    name[bytes] = 0;
    bound->dim[i] = (int8_t)pen_signature_dim(from, name);
    if (bound->dim[i] < 0) pen_stop(70, "ops.def: gradient of %s: no dim %s", from->kind, name);
  }
  for (int i = 0; i < to->real_count; i++)
    bound->real[i] = (int8_t)pen_signature_real(from, to->real[i]);
}

static const struct bound_rule *bind(const struct gradient_rule *rule) {
  static struct bound_rule bound_rules[COUNT(rules)];
  struct bound_rule *bound = &bound_rules[rule - rules];
  if (!bound->count) {
    split(rule, bound);
    bind_dims(rule, bound);
  }
  return bound;
}

/* Whether an output word of a rule is wanted by anybody. */
static bool wanted(const struct backward_walk *walk, const struct pen_op *forward,
                   const struct rule_operand *word) {
  uint32_t value = forward->operand[word->operand];
  return value != PEN_NONE && walk->graph->value[value].needs_gradient;
}

/* An input of a backward op: a forward value, a gradient, a private tensor, or the sum so far. */
static uint32_t input_of(const struct backward_walk *walk, const struct pen_op *forward,
                         const struct rule_operand *word, const struct rule_operand *first_output) {
  if (word->mark == '+') {
    uint32_t target = forward->operand[first_output->operand];
    return walk->graph->value[target].needs_gradient ? walk->gradient[target] : PEN_NONE;
  }
  if (word->mark == '*') return walk->private_value[word->operand];
  uint32_t value = forward->operand[word->operand];
  return word->mark == '\'' ? walk->gradient[value] : value;
}

/* An output of a backward op: a new gradient value (which becomes the sum so far), a private
 * tensor, or an accumulator. */
static uint32_t output_of(struct backward_walk *walk, const struct pen_op *forward,
                          const struct rule_operand *word, const struct pen_operand *operand,
                          const struct pen_op *backward) {
  struct pen_graph *graph = walk->graph;
  uint32_t target = forward->operand[word->operand];
  if (operand->accumulates) return graph->value[target].gradient;
  const char *name =
      pen_text("%s%s%s", graph->value[target].name, word->mark == '*' ? "*" : "'", walk->suffix);
  uint32_t made =
      pen_graph_value(graph, name, pen_operand_dtype(operand, backward->dtype), PEN_ROLE_ACTIVATION,
                      pen_operand_elements(operand, backward->dim));
  if (word->mark == '*')
    walk->private_value[word->operand] = made;
  else
    walk->gradient[target] = made;
  return made;
}

static void apply(struct backward_walk *walk, const struct gradient_rule *rule,
                  const struct pen_op *forward) {
  const struct bound_rule *bound = bind(rule);
  size_t input_count = bound->input_count, count = bound->count;
  bool any = false;
  for (size_t i = input_count; i < count; i++) any = any || wanted(walk, forward, &bound->word[i]);
  if (!any) return;
  const struct pen_signature *signature = pen_signature_of(rule->backward);
  struct pen_op op = {.kind = (uint16_t)rule->backward,
                      .dtype = pen_signature_dtype(signature, walk->graph->dtype),
                      .workspace = PEN_NONE};
  for (size_t i = 0; i < PEN_OPERANDS_MAX; i++) op.operand[i] = PEN_NONE;
  for (int i = 0; i < signature->dim_count; i++) op.dim[i] = forward->dim[bound->dim[i]];
  for (int i = 0; i < signature->real_count; i++) op.real[i] = forward->real[bound->real[i]];
  for (size_t i = 0; i < input_count; i++)
    op.operand[i] = input_of(walk, forward, &bound->word[i], &bound->word[input_count]);
  for (size_t i = input_count; i < count; i++)
    op.operand[i] = output_of(walk, forward, &bound->word[i], &signature->operand[i], &op);
  *pen_op_append(rule->weight_part ? walk->weight_list : walk->input_list, rule->backward) = op;
}

/* Hands gradients through where the rule is the identity. */
static void pass_through(struct backward_walk *walk, const struct pen_op *forward) {
  const struct pen_signature *signature = pen_signature_of(forward->kind);
  for (size_t i = 0; i < COUNT(pass_rules); i++) {
    if (pass_rules[i].forward != forward->kind) continue;
    uint32_t input = forward->operand[pen_signature_operand(signature, pass_rules[i].input)];
    uint32_t output = forward->operand[pen_signature_operand(signature, pass_rules[i].output)];
    if (input == PEN_NONE || !walk->graph->value[input].needs_gradient) continue;
    if (walk->gradient[input] != PEN_NONE)
      pen_stop(70, "derive: %s has two gradients and no op to add them",
               walk->graph->value[input].name);
    walk->gradient[input] = walk->gradient[output];
  }
}

static bool output_needs_gradient(const struct pen_graph *graph, const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (uint32_t i = signature->input_count; i < signature->operand_count; i++)
    if (op->operand[i] != PEN_NONE && graph->value[op->operand[i]].needs_gradient) return true;
  return false;
}

/* Walks the forward ops, or their copies, backwards, once, into the two lists (which may be the
 * same). */
static void walk_back(struct pen_graph *graph, const struct pen_recomputed *forwards,
                      struct pen_op_list *input_list, struct pen_op_list *weight_list,
                      const char *suffix) {
  struct backward_walk walk = {
      .graph = graph, .input_list = input_list, .weight_list = weight_list, .suffix = suffix};
  size_t values =
      graph
          ->value_count; /* the forward's; the walk adds more, which have no gradients themselves */
  walk.gradient = pen_new(values + 1, sizeof *walk.gradient);
  for (size_t i = 0; i < values; i++) walk.gradient[i] = PEN_NONE;
  for (uint32_t i = 0; i < values; i++) /* what a loss makes */
    if (graph->value[i].role == PEN_ROLE_ACTIVATION && graph->value[i].gradient != PEN_NONE)
      walk.gradient[pen_recomputed_of(forwards, i)] =
          pen_recomputed_of(forwards, graph->value[i].gradient);
  if (forwards->output != PEN_NONE) walk.gradient[forwards->output] = graph->output_gradient;
  for (size_t i = forwards->op.count; i-- > 0;) {
    const struct pen_op forward = forwards->op.op[i];
    if (!output_needs_gradient(graph, &forward)) continue;
    pass_through(&walk, &forward);
    for (size_t part = 0; part < 2; part++)
      for (size_t r = 0; r < COUNT(rules); r++)
        if (rules[r].forward == forward.kind && rules[r].weight_part == (part == 1))
          apply(&walk, &rules[r], &forward);
  }
  if (graph->input != PEN_NONE) graph->input_gradient = walk.gradient[graph->input];
}

/* A value needs a gradient when a trainable weight, or the stage's input, goes into it. */
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

/* Gives every op that wants one a workspace value, per program. */
static void add_workspaces(struct pen_graph *graph, struct pen_op_list *list, const char *name) {
  for (size_t i = 0; i < list->count; i++) {
    struct pen_op *op = &list->op[i];
    uint64_t bytes = pen_signature_workspace_bytes(
        pen_signature_of(op->kind), graph->topology->cluster_device, op->dtype, op->dim);
    if (bytes)
      op->workspace = pen_graph_value(graph, pen_text("%s.workspace%u", name, (unsigned)i), PEN_F32,
                                      PEN_ROLE_ACTIVATION, (bytes + 3) / 4);
  }
}

/* ---- the pass ---- */

/* B's gradient of the stage's input takes the name that I gave it: the neighbours know one tensor.
 */
static void unify_input_gradient(struct pen_graph *graph, uint32_t wanted) {
  uint32_t made = graph->input_gradient;
  graph->input_gradient = wanted;
  struct pen_op_list *list = &graph->program[PEN_PROGRAM_B];
  for (size_t i = 0; i < list->count; i++)
    for (size_t k = 0; k < PEN_OPERANDS_MAX; k++)
      if (list->op[i].operand[k] == made) list->op[i].operand[k] = wanted;
}

/* Whether the stage is a loss alone, whose F would make the gradient that I must hand on: then I
 * runs the loss again, so that the gradient's memory begins with the row that sends it. */
static bool is_loss_alone(const struct pen_graph *graph) {
  return graph->input != PEN_NONE && graph->value[graph->input].gradient != PEN_NONE;
}

static void derive_backward(struct pen_graph *graph) {
  mark_needs(graph);
  if (graph->output != PEN_NONE)
    graph->output_gradient =
        pen_graph_value(graph, "output'", graph->value[graph->output].dtype, PEN_ROLE_ACTIVATION,
                        graph->value[graph->output].elements);
  bool late = pen_loss_is_fused(graph),
       again = graph->recomputes || (!late && is_loss_alone(graph));
  struct pen_recomputed plain = {.op = graph->forward, .output = graph->output};
  struct pen_recomputed split = again ? pen_recompute_copy(graph, "(again)") : plain;
  struct pen_recomputed fused = again  ? pen_recompute_copy(graph, "(again)(B)")
                                : late ? pen_fused_loss_copy(graph, "(B)")
                                       : plain;
  struct pen_op_list *i = &graph->program[PEN_PROGRAM_I], *w = &graph->program[PEN_PROGRAM_W],
                     *b = &graph->program[PEN_PROGRAM_B];
  walk_back(graph, &split, i, w, "");
  if (late) pen_fused_loss_insert(graph, &split, i);
  if (again) graph->recompute_op_count[PEN_PROGRAM_I] = pen_recompute_prepend(graph, &split, i, w);
  uint32_t input_gradient = graph->input_gradient;
  walk_back(graph, &fused, b, b, again ? "" : "(B)");
  if (late) pen_fused_loss_insert(graph, &fused, b);
  if (late) pen_fused_loss_merge(b);
  if (again)
    graph->recompute_op_count[PEN_PROGRAM_B] = pen_recompute_prepend(graph, &fused, b, NULL);
  if (input_gradient != PEN_NONE) unify_input_gradient(graph, input_gradient);
  if (late) graph->program[PEN_PROGRAM_F].count--;
  if (again) pen_recompute_strip(graph);
}

void pen_backward(struct pen_graph *graph) {
  struct pen_op_list *forward = &graph->program[PEN_PROGRAM_F];
  for (size_t i = 0; i < graph->forward.count; i++)
    *pen_op_append(forward, 0) = graph->forward.op[i];
  if (graph->training) derive_backward(graph);
  static const char *const names[PEN_PROGRAMS] = {"F", "I", "W", "B"};
  for (size_t p = 0; p < PEN_PROGRAMS; p++) add_workspaces(graph, &graph->program[p], names[p]);
}
