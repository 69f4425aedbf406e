/* budget_bytes.h: the memory budget of a topology. */
#ifndef PEN_BUDGET_BYTES_H
#define PEN_BUDGET_BYTES_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/memory_budget.h"
#include "gen/topology/topology.h"

/* What a stage and microbatch hold in bytes, with the messages that the stage receives and those
 * that it sends. It does not depend on where the stage is placed. */
struct pen_stage_hold {
  struct pen_hold hold[PEN_PROGRAMS];  /* estimated by buffers */
  struct pen_hold least[PEN_PROGRAMS]; /* what is live: no layout has less */
  double unsharded;                    /* the weights that UNSHARD gathers */
  double partial; /* the gradients of one microbatch, which all stages of a rank use in turn */
  double slots;   /* of the tensor ranks' exchanges, two sets with one for each; likewise */
};

struct pen_stage_hold pen_stage_hold_of(const struct pen_partition *partition,
                                        const struct pen_graph *graph);

/* The part `least` of it alone. */
void pen_stage_least_of(const struct pen_graph *graph, struct pen_hold least[PEN_PROGRAMS]);

/* Bytes that a rank holds for the whole run at least: weights, gradients, moments and snapshots. */
double pen_resident_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                          uint32_t rank);

/* The memory budget that the topology sets: pipeline.live_limit with costs.live_backward and
 * costs.live_weight; or memory.limit_mib in bytes, minus the weights, gradients, moments and
 * snapshots of a rank and minus `slack` ([rank]; null: none); or no limit. `graph`: those of
 * training. The bytes that a stage holds are estimated from its programs; the layout gives the
 * exact number. */
struct pen_budget *pen_budget_of(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack);

/* The same; hold: [stage] pen_stage_hold_of(). */
struct pen_budget *pen_budget_of_holds(const struct pen_topology *topology,
                                       const struct pen_partition *partition,
                                       const struct pen_training *training,
                                       struct pen_graph *const *graph,
                                       const struct pen_stage_hold *hold, const double *slack);

#endif
