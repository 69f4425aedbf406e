/* measured_stages.h: measured costs of the stages of one cut: files of version 1. */
#ifndef PEN_MEASURED_STAGES_H
#define PEN_MEASURED_STAGES_H

#include "gen/model/graph.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

struct json_t;

/* What `train --measure` writes. */
struct pen_measured_stages;

/* Fails (65) where the file is wrong; `path`: the file, for messages. */
struct pen_measured_stages *pen_measured_stages_read(const char *path, const struct json_t *root);

/* The cost of stage graph->stage, in ms. Fails (65) if the file has another number of stages. */
struct pen_stage_cost pen_measured_stages_cost(const struct pen_measured_stages *stages,
                                               const struct pen_graph *graph);

/* What was another when the costs were measured. */
struct pen_measured_difference {
  const char *place; /* in the file, as in "stages[2].parameters"; NULL: nothing */
  const char *reason;
};

/* The first difference to the stages, [stage], of a topology: in the shape of a microbatch, in
 * tensor ranks and pieces, in their parameters or, if it trains, in what they recompute. */
struct pen_measured_difference pen_measured_stages_difference(
    const struct pen_measured_stages *stages, const struct pen_topology *topology,
    struct pen_graph *const *graph);

/* Fails (65) if the file was measured on another model than the plan's, or if there is a
 * difference. */
void pen_measured_stages_check(const struct pen_measured_stages *stages,
                               const struct pen_topology *topology, struct pen_graph *const *graph,
                               const struct pen_plan *plan);

#endif
