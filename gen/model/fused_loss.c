/* fused_loss.c: a loss that the backward computes.
 *
 * The loss HEAD_LOSS and its gradient both need the logits, which are too large to keep. If F
 * computed the loss, B would have to compute the logits again. So in training F ends before the
 * loss, and I and B begin with it and also store the microbatch's loss; in B one op computes the
 * loss and the gradient of its weight from the same logits. The order of all sums is the same, and
 * so are the bits. Evaluation has no backward, and its F ends with the loss. Of split weights there
 * is such a loss for each split, and F ends before the ops on which they depend (split_head.c).
 *
 * TOKEN_LOGP is no loss, and F runs it; its gradients are one op in B, too. */
#include "gen/model/fused_loss.h"

#include <string.h>

#include "gen/model/gradient_rules.h"
#include "gen/model/op_signature.h"
#include "gen/base/error.h"
#include "runtime/plan/plan.h"

bool pen_loss_is_fused(const struct pen_graph *graph) { return graph->fused_op_count > 0; }

/* The operand of that name, of one of the two ops. */
static uint32_t merged_operand(const struct pen_op *loss, const struct pen_op *weight,
                               const char *name) {
  int index = pen_signature_operand(pen_signature_of(loss->kind), name);
  if (index >= 0) return loss->operand[index];
  index = pen_signature_operand(pen_signature_of(weight->kind), name);
  if (index < 0) pen_stop(PEN_EXIT_INTERNAL, "ops.def: no operand %s to make one op of", name);
  return weight->operand[index];
}

/* The op from `first` on that adds the gradient of a loss's weight; the count: there is none. */
static size_t weight_op_of(const struct pen_op_list *program, size_t first,
                           const struct pen_op *loss, const struct pen_fused_loss *fused) {
  const int w = pen_signature_operand(pen_signature_of(fused->forward), "w"),
            same = pen_signature_operand(pen_signature_of(fused->weight), "w");
  while (first < program->count && (program->op[first].kind != fused->weight ||
                                    program->op[first].operand[same] != loss->operand[w]))
    first++;
  return first;
}

void pen_fused_loss_merge(struct pen_op_list *program) {
  for (size_t i = 0; i + 1 < program->count; i++) {
    const struct pen_fused_loss *fused = pen_fused_loss_of(program->op[i].kind);
    const size_t at = fused ? weight_op_of(program, i + 1, &program->op[i], fused) : program->count;
    if (at == program->count) continue;
    struct pen_op joined = program->op[i];
    const struct pen_signature *signature = pen_signature_of(fused->both);
    joined.kind = (uint16_t)fused->both;
    for (uint32_t k = 0; k < signature->operand_count; k++)
      joined.operand[k] =
          merged_operand(&program->op[i], &program->op[at], signature->operand[k].name);
    program->op[i] = joined;
    memmove(&program->op[at], &program->op[at + 1], (program->count - at - 1) * sizeof joined);
    program->count--;
  }
}

double pen_shared_flops(const struct pen_graph *graph) {
  const struct pen_op_list *program = graph->program, *b = &program[PEN_PROGRAM_B];
  bool is_shared = pen_loss_is_fused(graph);
  for (size_t i = 0; i < b->count; i++)
    is_shared = is_shared || pen_fused_loss_made_by(b->op[i].kind);
  if (!graph->training || !is_shared) return 0;
  return pen_program_flops(&program[PEN_PROGRAM_I]) + pen_program_flops(&program[PEN_PROGRAM_W]) -
         pen_program_flops(&program[PEN_PROGRAM_B]);
}
