/* output.h: writes what --print selects. */
#ifndef PEN_OUTPUT_H
#define PEN_OUTPUT_H

#include "gen/pipeline/options.h"
#include "gen/search/search.h"
#include "gen/timing/cost_model.h"
#include "gen/verify/verify.h"
#include "gen/model/stage_io.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* The results of the passes that the output needs. */
struct pen_result {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_stage_io shapes;
  struct pen_cost_model cost;
  const struct pen_stage_cost *placed_cost; /* [stage] of `cost`, on their ranks */
  const struct pen_order *order;
  const struct pen_timing *timing;
  struct pen_graph *const *own;    /* [stage] graphs of the topology's main profile */
  const struct pen_search *search; /* null: there is no search */
  const struct pen_plan *plan;
  const struct pen_result *fallbacks;     /* [plan->fallback_count] */
  const struct pen_result *measured;      /* [plan->measured_count] */
  const struct pen_action_lists *refused; /* pen_output_deadlock(): there is no plan */
};

/* Ends the generator (64) if an output file is also an input. Call it before anything is written.
 */
void pen_output_check(const struct pen_topology *topology,
                      const struct pen_generator_options *options);

/* Writes what the options select to standard output or to their file, which is complete or absent.
 * Fails (73, 74). */
void pen_output(const struct pen_result *result, const struct pen_generator_options *options);

/* For actions of --actions that fail verification, so that there is no plan: with --print=promela,
 * prints their model if a deadlock is the only problem, so that SPIN can check them too. */
void pen_output_deadlock(const struct pen_topology *topology, const struct pen_partition *partition,
                         const struct pen_action_lists *actions,
                         const struct pen_generator_options *options);

/* Writes make's dependencies: `target: sources`, and an empty rule for each source, so that make
 * does not fail when one is removed. Fails (73, 74). */
void pen_output_dependencies(const struct pen_topology *topology, const char *target,
                             const char *path);

/* Writes the device and the transport that the plan must be linked with, on one line. Fails (73,
 * 74). */
void pen_output_link(const struct pen_plan *plan, const char *path);

#endif
