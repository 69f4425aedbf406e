/* experts.h: the layers of experts of a plan. */
#ifndef PEN_PLAN_EXPERTS_H
#define PEN_PLAN_EXPERTS_H

#include "runtime/plan/plan.h"

/* The first op of a rank that multiplies by experts, whose dims say how many there are and how rows
 * are divided (kernels/ops.def); null: it has none. */
static inline const struct pen_op *pen_rank_experts(const struct pen_rank_program *program) {
  for (uint32_t i = 0; i < program->op_count; i++)
    if (program->ops[i].kind == PEN_OP_EXPERTS) return &program->ops[i];
  return NULL;
}

#endif
