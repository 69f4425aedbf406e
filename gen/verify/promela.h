/* promela.h: a plan's communication as a model for SPIN (spinroot.com), which searches all
 * interleavings for a deadlock. */
#ifndef PEN_PROMELA_H
#define PEN_PROMELA_H

#include <stdio.h>

#include "runtime/plan/plan.h"

struct pen_lowered;   /* gen/lower/lower.h */
struct pen_partition; /* gen/partition/partition.h */

/* Writes the first profile of a plan that pen_verify() accepts, or would accept but for a deadlock;
 * of several replicas one, which it says. */
void pen_promela(FILE *out, const struct pen_plan *plan);

/* The same of bare rows: every message has a credit, and nothing is overwritten. Returns false, and
 * writes nothing, when more is wrong with them than that they can deadlock. `out` may be null:
 * nothing is written either. */
bool pen_promela_actions(FILE *out, const char *name, const struct pen_lowered *rows,
                         const struct pen_partition *partition, int profile_kind);

#endif
