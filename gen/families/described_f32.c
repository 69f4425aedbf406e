/* described_f32.c: which ops of a bf16 model are of f32 (see described_f32.h). */
#include "gen/families/described_f32.h"

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "runtime/plan/plan.h"

bool pen_kind_value_is_f32(const struct pen_kind *kind, uint32_t value) {
  const uint32_t index = kind->value[value].maker;
  if (index == PEN_NONE || !kind->description->is_bf16) return false;
  const struct pen_kind_op *maker = &kind->op[index];
  const struct pen_signature *signature = pen_signature_of(maker->row->kind);
  const int output = signature->input_count + (int)(value - maker->first_output);
  return maker->in_f32 || !signature->operand[output].of_op;
}

static bool reads_f32(const struct pen_kind *kind, const struct pen_kind_op *op) {
  for (int k = 0; k < PEN_OPERANDS_MAX; k++) {
    const struct pen_kind_operand *operand = &op->operand[k];
    if (operand->source == PEN_OPERAND_VALUE ? pen_kind_value_is_f32(kind, operand->value)
                                             : operand->source == PEN_OPERAND_INPUT)
      return true;
  }
  return false;
}

void pen_kind_find_f32(struct pen_kind *kind) {
  bool *reads_other = pen_new(kind->value_count + 1, sizeof *reads_other); /* than such an op */
  if (kind->logits != PEN_NONE) reads_other[kind->op[kind->logits].first_output] = true; /* texts */
  for (uint32_t i = kind->op_count; i-- > 0;) {
    struct pen_kind_op *op = &kind->op[i];
    op->in_f32 = pen_row_f32_of(op->row->kind) != PEN_F32_NEVER;
    for (int n = 0; n < pen_described_outputs(op->row->kind); n++)
      op->in_f32 = op->in_f32 && !reads_other[op->first_output + (uint32_t)n];
    for (int k = 0; k < PEN_OPERANDS_MAX && !op->in_f32; k++)
      if (op->operand[k].source == PEN_OPERAND_VALUE) reads_other[op->operand[k].value] = true;
  }
  pen_free(reads_other);
  for (uint32_t i = 0; i < kind->op_count; i++) {
    struct pen_kind_op *op = &kind->op[i];
    op->in_f32 =
        op->in_f32 && (pen_row_f32_of(op->row->kind) == PEN_F32_READS_ANY || reads_f32(kind, op));
    for (int k = 0; k < PEN_OPERANDS_MAX && op->in_f32; k++)
      if (op->operand[k].source == PEN_OPERAND_INPUT && op->operand[k].use == PEN_USED_AS_VALUES)
        op->operand[k].use = PEN_USED_AS_F32;
  }
}
