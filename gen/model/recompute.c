/* recompute.c: trades memory for time (Chen et al. 2016, "Training deep nets with sublinear memory
 * cost", with a stage as the segment).
 *
 * A stage with memory.recompute = "full" saves nothing that its F computes; its input stays in its
 * receive slot. Its I (or B) begins with copies of the forward ops, so recomputation needs no
 * action of its own: the values of the copies are live within that action, or from I to W, and all
 * later passes see an ordinary program. Copies whose results no backward op needs (they lead only
 * to the output) are left out. Inputs of the step are read again, and constants stay.
 *
 * The same kernels run on the same operands, so the bits are the same. F computes the loss but not
 * its gradient; the copy computes the gradient, and its loss is not used. A fused loss
 * (fused_loss.c) is not in F: the loss of the copy is the one that counts. */
#include "gen/model/recompute.h"

#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* The copy of an output of an op; that of a loss is a value that no op reads. */
static uint32_t copy_value(struct pen_graph *graph, uint32_t value, const char *suffix) {
  const struct pen_value *from = &graph->value[value];
  bool needs_gradient = from->needs_gradient;
  uint32_t copy = pen_graph_value(graph, pen_text("%s%s", from->name, suffix), from->dtype,
                                  PEN_ROLE_ACTIVATION, from->elements);
  graph->value[copy].needs_gradient = needs_gradient;
  return copy;
}

struct pen_recomputed pen_recompute_copy(struct pen_graph *graph, const char *suffix) {
  struct pen_recomputed copies = {.output = PEN_NONE};
  size_t values = graph->value_count;
  uint32_t *copy_of = pen_new(values + 1, sizeof *copy_of);
  for (uint32_t v = 0; v < values; v++) copy_of[v] = v;
  for (size_t i = 0; i < graph->forward.count; i++) {
    const struct pen_op *from = &graph->forward.op[i];
    const struct pen_signature *signature = pen_signature_of(from->kind);
    struct pen_op *op = pen_op_append(&copies.op, from->kind);
    *op = *from;
    for (uint32_t k = 0; k < signature->operand_count; k++) {
      if (from->operand[k] == PEN_NONE) continue;
      if (k >= signature->input_count)
        copy_of[from->operand[k]] = copy_value(graph, from->operand[k], suffix);
      op->operand[k] = copy_of[from->operand[k]];
    }
  }
  copies.copy_of = copy_of;
  copies.copied = values;
  if (graph->output != PEN_NONE) copies.output = copy_of[graph->output];
  return copies;
}

void pen_recompute_strip(struct pen_graph *graph) {
  for (size_t i = 0; i < graph->program[PEN_PROGRAM_F].count; i++) {
    struct pen_op *op = &graph->program[PEN_PROGRAM_F].op[i];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
      if (signature->operand[k].optional) op->operand[k] = PEN_NONE;
  }
}

static void want_inputs(const struct pen_op *op, bool *wanted) {
  for (uint32_t k = 0; k < pen_signature_of(op->kind)->input_count; k++)
    if (op->operand[k] != PEN_NONE) wanted[op->operand[k]] = true;
}

static void want_all(const struct pen_op_list *list, bool *wanted) {
  for (size_t i = 0; list && i < list->count; i++) want_inputs(&list->op[i], wanted);
}

static bool makes_wanted(const struct pen_op *op, const bool *wanted) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
    if (op->operand[k] != PEN_NONE && wanted[op->operand[k]]) return true;
  return false;
}

uint32_t pen_recompute_prepend(struct pen_graph *graph, const struct pen_recomputed *copies,
                               struct pen_op_list *program, const struct pen_op_list *later) {
  bool *wanted = pen_new(graph->value_count + 1, sizeof *wanted),
       *kept = pen_new(copies->op.count + 1, sizeof *kept);
  want_all(program, wanted);
  want_all(later, wanted);
  if (graph->input_gradient != PEN_NONE)
    wanted[graph->input_gradient] = true; /* a copied loss may compute it */
  for (size_t i = copies->op.count; i-- > 0;) {
    kept[i] = makes_wanted(&copies->op.op[i], wanted);
    if (kept[i]) want_inputs(&copies->op.op[i], wanted);
  }
  struct pen_op_list joined = {0};
  for (size_t i = 0; i < copies->op.count; i++)
    if (kept[i]) *pen_op_append(&joined, 0) = copies->op.op[i];
  uint32_t count = (uint32_t)joined.count;
  for (size_t i = 0; i < program->count; i++) *pen_op_append(&joined, 0) = program->op[i];
  *program = joined;
  return count;
}

double pen_recomputed_flops(const struct pen_graph *graph) {
  struct pen_op_list copies = {.op = graph->program[PEN_PROGRAM_I].op,
                               .count = graph->recompute_op_count[PEN_PROGRAM_I]};
  return pen_program_flops(&copies);
}
