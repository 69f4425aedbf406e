/* plan_summary.h: what penstock-report needs to know of a plan, as JSON: for --log and for
 * --trace. */
#ifndef PEN_PLAN_SUMMARY_H
#define PEN_PLAN_SUMMARY_H

#include "runtime/plan/plan.h"

/* A JSON object, to be freed:
 *
 *   {"name":"mine","digest":"95..","schedule":"1f1b","ranks":4,"stages_per_rank":2,
 *    "microbatches":8,"replicas":1,"unit":"in Gflop","makespan":4.79,
 *    "bytes":{"weights":[1444352,..],..}}
 *
 * `bytes`: of the ranks of a replica, by kind (memory_kinds.def), the kinds that a rank has. */
char *pen_plan_summary(const struct pen_plan *plan);

/* The same, for a trace of steps of `profile`, without `bytes`; with `times`, by rank of a replica,
 * if the plan predicts this profile:
 *
 *   "times":[[["0F0",0,0.0875],..],..]
 *
 * each F, I, W and B of the rank, its start and its end in `unit`. */
char *pen_planned_step(const struct pen_plan *plan, const struct pen_profile *profile);

#endif
