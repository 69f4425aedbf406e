/* audit_draw.c: draws the action that a rank audits (see audit_draw.h). First a stage: the rank
 * that updates its weights a step earlier must know it, before the shape of the next step is known.
 */
#include "runtime/exec/audit_draw.h"

#include "runtime/base/check.h"

/* SplitMix64 (Steele, Lea and Flood 2014): the finalizer. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

enum draw_kind { DRAW_STAGE, DRAW_ACTION, DRAW_WEIGHT, DRAWS };

/* Below `count`. */
static uint32_t draw_below(const struct pen_audit_draw *draw, enum draw_kind what, uint32_t count) {
  const uint64_t gamma = 0x9e3779b97f4a7c15u;
  const uint64_t bits = mix(mix(mix(draw->seed + gamma) + draw->step * gamma) +
                            (DRAWS * (uint64_t)draw->global + what));
  return (uint32_t)((bits >> 32) * count >> 32);
}

uint32_t pen_audit_draw_stage(const struct pen_profile *profile, const struct pen_plan *plan,
                              const struct pen_audit_draw *draw) {
  uint32_t left = draw_below(draw, DRAW_STAGE, plan->stages_per_rank);
  for (uint32_t s = 0; s < plan->stage_count; s++) {
    if (profile->stages[s].rank == pen_table_rank(plan, draw->global) && left-- == 0) {
      return s;
    }
  }
  pen_fail(PEN_EXIT_INTERNAL, "rank %u has no stage", draw->global);
}

static const struct pen_action *find_action(const struct pen_rank_program *program, uint32_t stage,
                                            uint32_t number, uint32_t *count) {
  *count = 0;
  for (uint32_t i = 0; i < program->action_count; i++) {
    const struct pen_action *action = &program->actions[i];
    if (action->kind <= PEN_W && action->stage == stage && (*count)++ == number) {
      return action;
    }
  }
  return NULL;
}

const struct pen_action *pen_audit_draw_action(const struct pen_profile *profile,
                                               const struct pen_plan *plan,
                                               const struct pen_audit_draw *draw) {
  const struct pen_rank_program *program = &profile->ranks[pen_table_rank(plan, draw->global)];
  const uint32_t stage = pen_audit_draw_stage(profile, plan, draw);
  uint32_t count;
  find_action(program, stage, PEN_NONE, &count);
  return find_action(program, stage, draw_below(draw, DRAW_ACTION, count), &count);
}

uint32_t pen_audit_draw_weight(const struct pen_audit_draw *draw, uint32_t count) {
  return draw_below(draw, DRAW_WEIGHT, count);
}
