/* audit_draw.h: which action of a step a rank audits: drawn by seed, step and rank, so that each
 * rank knows what the others audit. */
#ifndef PEN_AUDIT_DRAW_H
#define PEN_AUDIT_DRAW_H

#include "runtime/plan/plan.h"

struct pen_audit_draw {
  uint64_t seed, step; /* optimizer steps, from 1 */
  uint32_t global;     /* rank */
};

/* One of the rank's stages, the same for every profile. */
uint32_t pen_audit_draw_stage(const struct pen_profile *profile, const struct pen_plan *plan,
                              const struct pen_audit_draw *draw);

/* An action (F, B, I or W) of that stage. */
const struct pen_action *pen_audit_draw_action(const struct pen_profile *profile,
                                               const struct pen_plan *plan,
                                               const struct pen_audit_draw *draw);

/* One of `count` weights that the rank trains. */
uint32_t pen_audit_draw_weight(const struct pen_audit_draw *draw, uint32_t count);

#endif
