/* promela.h: a plan's communication as a model for SPIN (spinroot.com), which searches all
 * interleavings for a deadlock. */
#ifndef PEN_PROMELA_H
#define PEN_PROMELA_H

#include <stdio.h>

#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"

/* Writes the first profile of a plan that pen_verify() accepts, or refuses only for a deadlock; one
 * of several replicas. */
void pen_promela(FILE *out, const struct pen_plan *plan);

/* Writes bare actions: every message has a credit, and nothing is overwritten. Returns false, and
 * writes nothing, when they have another problem than a deadlock. `out` may be null: nothing is
 * written. */
bool pen_promela_actions(FILE *out, const char *name, const struct pen_action_lists *lists,
                         uint32_t replicas);

#endif
