/* recompute.c: trades memory for time (Chen et al. 2016, "Training deep nets with sublinear memory
 * cost"), segment by segment (units.c).
 *
 * F saves nothing within a segment that is recomputed, only what another segment reads of it. In I
 * (or B) copies of the segment's forward ops come immediately before the ops of its gradients, so
 * recomputation needs no action of its own: the values of the copies are live within that action,
 * or from I to W, and all later passes see an ordinary program. Copies whose results no backward op
 * needs (they lead only to the segment's output) are left out. Inputs of the step are read again in
 * each segment, and constants stay.
 *
 * An op that is kept (PEN_KEPT of ops.def) has no copy: the copies read what F has made by it; its
 * gradient reads what the copies make of its inputs.
 *
 * The same kernels run on the same operands, so the bits are the same. F computes the loss but not
 * its gradient; the copy computes the gradient, and its loss is not used. A fused loss
 * (fused_loss.c) is not in F: the loss of the copy is the one that counts. */
#include "gen/model/recompute.h"

#include "gen/model/place.h"

#include <string.h>

#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "runtime/plan/plan.h"

/* ---- copies ---- */

struct copy_pass {
  struct pen_graph *graph;
  struct pen_forwards *forwards;
  const char *suffix;
  uint32_t segment;     /* that is being copied */
  uint32_t *data_op_of; /* [value] the op of this input of the step, unless a block gives it; else
                           PEN_NONE */
};

/* The copy of an output of an op. That of a loss is a value that no op reads, unless F has no loss.
 */
static uint32_t copy_value(struct copy_pass *pass, uint32_t value, bool is_fused) {
  struct pen_graph *graph = pass->graph;
  const struct pen_value from = graph->value[value];
  if (from.role == PEN_ROLE_LOSS && is_fused) return value;
  uint32_t copy = pen_graph_value(graph, pen_text("%s%s", from.name, pass->suffix), from.dtype,
                                  PEN_ROLE_ACTIVATION, from.elements);
  graph->value[copy].needs_gradient = from.needs_gradient;
  pen_place_as(graph, copy, value);
  graph->value[copy].is_copy = true;
  graph->value[copy].is_recomputed = !is_fused;
  return copy;
}

static void copy_op(struct copy_pass *pass, const struct pen_op *from, bool is_fused);

/* What the copied segment uses instead of a value: its copy if the segment makes it, or a copy of
 * an input of the step, which is read again at its first use. */
static uint32_t map_input(struct copy_pass *pass, uint32_t value) {
  const struct pen_forwards *forwards = pass->forwards;
  const struct pen_segment *segment = &forwards->segments.segment[pass->segment];
  if (value == PEN_NONE) return PEN_NONE;
  uint32_t data_op = pass->data_op_of[value];
  if (data_op != PEN_NONE && !segment->recomputed) return value;
  if (data_op != PEN_NONE && forwards->segment_of[value] != pass->segment)
    copy_op(pass, &pass->graph->forward.op[data_op], false);
  return forwards->segment_of[value] == pass->segment ? forwards->copy_of[value] : value;
}

/* Appends the copy of an op to the list. `is_fused`: F does not run it. */
static void copy_op(struct copy_pass *pass, const struct pen_op *from, bool is_fused) {
  const struct pen_signature *signature = pen_signature_of(from->kind);
  struct pen_op op = *from;
  for (uint32_t k = 0; k < signature->input_count; k++)
    op.operand[k] = map_input(pass, from->operand[k]);
  for (uint32_t k = signature->input_count; k < signature->operand_count; k++) {
    uint32_t value = from->operand[k];
    if (value == PEN_NONE) continue;
    op.operand[k] = pass->forwards->copy_of[value] = copy_value(pass, value, is_fused);
    pass->forwards->segment_of[value] = pass->segment;
  }
  *pen_op_append(&pass->forwards->op, op.kind) = op;
}

/* Appends an op that is kept, on the inputs of the copies. */
static void append_kept(struct copy_pass *pass, const struct pen_op *from) {
  struct pen_op op = *from;
  for (uint32_t k = 0; k < pen_signature_of(from->kind)->input_count; k++)
    op.operand[k] = map_input(pass, from->operand[k]);
  *pen_op_append(&pass->forwards->op, op.kind) = op;
}

/* Appends the ops of a segment: as they are, or copies, those of inputs of the step at their first
 * use. Sets the segment's places in the list. */
static void append_segment(struct copy_pass *pass, struct pen_segment *segment) {
  const struct pen_op *forward = pass->graph->forward.op;
  const size_t first = pass->forwards->op.count;
  for (size_t i = segment->first; i < segment->past; i++) {
    uint32_t output = forward[i].operand[pen_signature_of(forward[i].kind)->input_count];
    bool is_fused = i + segment->fused_op_count >= segment->past;
    if (!segment->recomputed && !is_fused)
      *pen_op_append(&pass->forwards->op, 0) = forward[i];
    else if (pen_op_is_kept(forward[i].kind))
      append_kept(pass, &forward[i]);
    else if (pass->data_op_of[output] == PEN_NONE)
      copy_op(pass, &forward[i], is_fused);
  }
  segment->first = first;
  segment->past = pass->forwards->op.count;
}

static void note_data_op(struct copy_pass *pass, uint32_t index) {
  const struct pen_op *op = &pass->graph->forward.op[index];
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (uint32_t k = signature->input_count; signature->is_data && k < signature->operand_count; k++)
    if (op->operand[k] != PEN_NONE && !pass->graph->value[op->operand[k]].is_given)
      pass->data_op_of[op->operand[k]] = index;
}

struct pen_forwards pen_recompute_copy(struct pen_graph *graph, const char *suffix) {
  struct pen_forwards forwards = {.value_count = graph->value_count,
                                  .segments = pen_segments_of(graph),
                                  .segment_of = pen_new(graph->value_count + 1, sizeof(uint32_t)),
                                  .copy_of = pen_new(graph->value_count + 1, sizeof(uint32_t))};
  struct copy_pass pass = {.graph = graph,
                           .forwards = &forwards,
                           .suffix = suffix,
                           .data_op_of = pen_new(graph->value_count + 1, sizeof(uint32_t))};
  for (uint32_t v = 0; v < forwards.value_count; v++) {
    forwards.copy_of[v] = v;
    forwards.segment_of[v] = pass.data_op_of[v] = PEN_NONE;
  }
  for (uint32_t i = 0; i < graph->forward.count; i++) note_data_op(&pass, i);
  for (; pass.segment < forwards.segments.count; pass.segment++)
    append_segment(&pass, &forwards.segments.segment[pass.segment]);
  pen_free(pass.data_op_of);
  return forwards;
}

void pen_forwards_free(struct pen_forwards *forwards) {
  pen_free(forwards->segments.segment);
  pen_free(forwards->segment_of);
  pen_free(forwards->copy_of);
}

void pen_recompute_strip(struct pen_graph *graph, const struct pen_segments *segments) {
  for (size_t s = 0; s < segments->count; s++)
    for (size_t i = segments->segment[s].first;
         segments->segment[s].recomputed && i < segments->segment[s].past; i++) {
      struct pen_op *op = &graph->program[PEN_PROGRAM_F].op[i];
      const struct pen_signature *signature = pen_signature_of(op->kind);
      for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
        if (signature->operand[k].optional) op->operand[k] = PEN_NONE;
    }
}

/* ---- what the backward needs of a segment ---- */

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

void pen_recompute_join(const struct pen_forwards *forwards, const struct pen_segment *segment,
                        const struct pen_op_list *gradients, const struct pen_op_list *later,
                        bool *wanted, struct pen_op_list *program) {
  const struct pen_op *op = forwards->op.op;
  size_t first = segment->recomputed ? segment->first : segment->past - segment->fused_op_count;
  bool *kept = pen_new(segment->past - first + 1, sizeof *kept);
  want_all(gradients, wanted);
  want_all(later, wanted);
  for (size_t i = segment->past; i-- > first;) {
    bool is_fused = i + segment->fused_op_count >= segment->past;
    kept[i - first] = is_fused || (!pen_op_is_kept(op[i].kind) && makes_wanted(&op[i], wanted));
    if (kept[i - first]) want_inputs(&op[i], wanted);
  }
  for (size_t i = first; i < segment->past; i++)
    if (kept[i - first]) *pen_op_append(program, 0) = op[i];
  for (size_t i = 0; i < gradients->count; i++) *pen_op_append(program, 0) = gradients->op[i];
  pen_free(kept);
}

bool pen_op_is_recomputed(const struct pen_graph *graph, const struct pen_op *op) {
  const struct pen_signature *signature = pen_signature_of(op->kind);
  for (uint32_t k = signature->input_count; k < signature->operand_count; k++)
    if (op->operand[k] != PEN_NONE) return graph->value[op->operand[k]].is_recomputed;
  return false;
}

uint32_t pen_recomputed_op_count(const struct pen_graph *graph, const struct pen_op_list *program) {
  uint32_t count = 0;
  for (size_t i = 0; i < program->count; i++) count += pen_op_is_recomputed(graph, &program->op[i]);
  return count;
}

double pen_recomputed_flops(const struct pen_graph *graph) {
  double flops = 0;
  const struct pen_op_list *program = &graph->program[PEN_PROGRAM_I];
  for (size_t i = 0; i < program->count; i++)
    if (pen_op_is_recomputed(graph, &program->op[i]))
      flops += pen_signature_flops(pen_signature_of(program->op[i].kind), program->op[i].dim);
  return flops;
}
