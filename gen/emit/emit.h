/* emit.h: gen/emit writes a plan as C.
 *
 * In: a verified struct pen_plan (runtime/plan/plan.h), and for comments the command line and the
 * timing. Out: one C file that the runtime links with (pen_plan), readable and the same bytes for
 * the same input; and the plan's digest, which the ranks compare at start. The columns of the
 * tables are those of runtime/plan/plan.def (columns.h): a column that is added there is emitted
 * and enters the digest.
 */
#ifndef PEN_EMIT_H
#define PEN_EMIT_H

#include <stdio.h>

#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* What the comment at the head of the file and pen_plan.forecast say. */
struct pen_emit_header {
  const char *command;                /* paths by base name */
  const unsigned char *source_digest; /* [PEN_DIGEST_BYTES] of the topology */
  const char *cost_unit;              /* "in ms" */
  const struct pen_timing *timing;
  double flops, peak_tflops;               /* see pen_forecast; 0: the peak is not known */
  const struct pen_emit_header *fallbacks; /* [plan->fallback_count]: cost unit and timing */
  const struct pen_emit_header *measured;  /* [plan->measured_count]: the same */
};

/* Sets plan->digest from the settings, the version and the tables. */
void pen_plan_digest(struct pen_plan *plan);

/* Sets plan->fallbacks, and one digest of all these plans in all of them. Each has its own. */
void pen_plan_add_fallbacks(struct pen_plan *plan, struct pen_plan *fallbacks, uint32_t count);

void pen_emit_c(FILE *out, const struct pen_plan *plan, const struct pen_emit_header *header);

#endif
