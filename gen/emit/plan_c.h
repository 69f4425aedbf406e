/* emit.h: the last pass: the plan as C tables, and its digest. */
#ifndef PEN_EMIT_H
#define PEN_EMIT_H

#include <stdio.h>

#include "gen/schedule/action_text.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* What stands on top of the file besides the plan. */
struct pen_emit_header {
  const char *command; /* paths by base name */
  const unsigned char *source_digest;
  const char *cost_unit;
  const struct pen_timing *timing;
};

/* Sets plan->digest from the settings, the version and the tables (digest.c). */
void pen_plan_digest(struct pen_plan *plan);

/* Writes every table of the plan as C (emit_tables.c). */
void pen_emit_tables(FILE *out, const struct pen_plan *plan);

void pen_emit_c(FILE *out, const struct pen_plan *plan, const struct pen_emit_header *header);

#endif
