/* report_json.h: the plan in figures, as JSON. */
#ifndef PEN_REPORT_JSON_H
#define PEN_REPORT_JSON_H

#include <stdio.h>

#include "gen/schedule/order.h"
#include "gen/search/search.h"
#include "gen/timing/collective_sums.h"
#include "gen/timing/lower_bound.h"
#include "gen/timing/critical_path.h"
#include "gen/timing/robustness.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* What the report of the train profile is made from. Times are in the unit of the costs. */
struct pen_report {
  const struct pen_plan *plan;
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_stage_cost *stage_cost; /* [stage] on their ranks */
  const struct pen_timing *timing;
  double step;                   /* of pen_step_time() */
  const struct pen_order *order; /* with the collectives of replicas, as the next three */
  const struct pen_path *path;
  const struct pen_bounds *bounds;
  const struct pen_collective_sum *sums; /* pen_collective_sums() */
  double utilisation;                    /* pen_useful_work() over makespan x pen_speed_sum() */
  const struct pen_search *search;       /* null: none */
  const double *fallback_makespans;      /* [plan->fallback_count] */
  const struct pen_spread *spread;       /* [spread_count]; null: without --robustness */
  size_t spread_count;
};

/* Writes the report of docs/contracts.md section 10. */
void pen_report_json(FILE *out, const struct pen_report *report);

#endif
