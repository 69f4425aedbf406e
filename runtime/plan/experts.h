/* experts.h: the layers of experts of a plan. */
#ifndef PEN_PLAN_EXPERTS_H
#define PEN_PLAN_EXPERTS_H

#include "runtime/plan/plan.h"

/* The first op of a stage of a rank, or with PEN_NONE of any, that multiplies by experts, whose
 * dims say how many there are and how rows are divided (kernels/ops.def); null: it has none. */
static inline const struct pen_op *pen_experts_of(const struct pen_rank_program *rank,
                                                  uint32_t stage) {
  for (uint32_t p = 0; p < rank->program_count; p++) {
    const struct pen_program *program = &rank->programs[p];
    for (uint32_t i = program->first_op; i < program->first_op + program->op_count; i++)
      if (rank->ops[i].kind == PEN_OP_EXPERTS && (stage == PEN_NONE || program->stage == stage))
        return &rank->ops[i];
  }
  return NULL;
}

#endif
