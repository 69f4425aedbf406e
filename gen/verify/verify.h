/* verify.h: checks a finished plan, or a bare list of actions, independently of the passes that
 * made it.
 *
 * In: a struct pen_plan. Out: the first problem, or none. It reads runtime/plan/ and the .def lists
 * only, and shares no code with the other passes.
 */
#ifndef PEN_VERIFY_H
#define PEN_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

/* The first thing wrong with a plan. */
struct pen_problem {
  char reason[200];
  uint32_t rank;   /* PEN_NONE: of the plan as a whole */
  uint32_t action; /* index into that rank's rows, or PEN_NONE */
};

/* Order, completeness, matching and deadlock of bare rows (columns kind, overlaps, stage,
 * microbatch), before there is any memory. WAIT and step-end rows may be absent. Returns true when
 * all is well. */
bool pen_verify_actions(struct pen_action *const *action, const uint32_t *count,
                        uint32_t rank_count, uint32_t stage_count, uint32_t microbatch_count,
                        const uint32_t *rank_of, int profile_kind, struct pen_problem *problem);

/* All of section 3.8 on the finished plan, every profile: rows, messages, credits, programs,
 * tensors, slots, over two steps. */
bool pen_verify(const struct pen_plan *plan, struct pen_problem *problem);

#endif
