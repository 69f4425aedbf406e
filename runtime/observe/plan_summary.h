/* plan_summary.h: what penstock-report needs to know of the plan of a run, as JSON. */
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

#endif
