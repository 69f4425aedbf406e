/* cost_model.h: the costs of a plan: from the topology, or measured (--costs). */
#ifndef PEN_COST_MODEL_H
#define PEN_COST_MODEL_H

#include "gen/partition/training.h"
#include "gen/timing/collectives.h"
#include "gen/timing/measured_cost.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* Where costs come from. */
struct pen_cost_source {
  const struct pen_topology *topology;
  const struct pen_measured *measured; /* NULL: the topology gives the costs */
};

/* The cost of stage graph->stage of graph->stages by itself, at speed 1, without what depends on
 * its place: measured messages, and collectives. `number`: of the stage, for costs by number. Fails
 * (65) where a file does not have them. */
struct pen_stage_cost pen_cost_of_stage(const struct pen_cost_source *source,
                                        const struct pen_graph *graph, uint32_t number);

/* Whether stages with the same blocks may have different costs by their number. */
bool pen_cost_is_by_number(const struct pen_cost_source *source);

struct pen_cost_model {
  const struct pen_stage_cost *stage;  /* [stage] at speed 1: pen_costs_on_ranks() */
  const struct pen_topology *topology; /* costs of the collectives: they depend on the placement */
  struct pen_graph *const *graph;      /* [stage] */
  double overlap;                      /* cost of a pair a|b; below 0: the sum of both */
  const char *unit;                    /* as in "in ms" */
  const char *path;                    /* the file that gives the costs, for messages */
  int error_status;                    /* exit status if they are wrong */
  double update_element, norm_element; /* of an element in UPDATE, and in NORM; 0: not measured */
  double peak_tflops;                  /* what a rank computes at most; 0: not known */
  struct pen_cost_source source;
  const struct pen_stage_cost *alone; /* [stage] pen_cost_of_stage() */
};

/* The costs of a partition whose stages have the costs `alone`. `graph` is [stage], of the
 * topology's own profile; it may be NULL where nothing was measured, with one replica of one tensor
 * rank. */
struct pen_cost_model pen_cost_model_of(const struct pen_cost_source *source,
                                        const struct pen_partition *partition,
                                        struct pen_graph *const *graph,
                                        const struct pen_stage_cost *alone);

/* The same from the graphs. `measured` is NULL: by the topology. */
struct pen_cost_model pen_cost_model(const struct pen_topology *topology,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph,
                                     const struct pen_measured *measured);

/* The costs of the same stages where another partition places them. */
struct pen_cost_model pen_cost_model_placed(const struct pen_cost_model *cost,
                                            const struct pen_partition *partition);

/* [stage] pen_collective_costs() of the stages where a partition places them. */
struct pen_collective_cost *pen_cost_model_collectives(const struct pen_cost_model *cost,
                                                       const struct pen_partition *partition);

/* Simulates a step by pen_simulate_step(). Fails (65, 78) if the makespan is infinite. */
struct pen_timing *pen_cost_model_time(const struct pen_cost_model *cost,
                                       const struct pen_order *order,
                                       const struct pen_partition *partition,
                                       const struct pen_training *training, int profile_kind,
                                       bool given);

/* Fails: the costs are finite, but their sum is not. */
_Noreturn void pen_cost_model_fail(const struct pen_cost_model *cost);

#endif
