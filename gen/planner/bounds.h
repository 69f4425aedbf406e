/* bounds.h: what no candidate of a pipeline can beat, in time and in memory. */
#ifndef PEN_PLANNER_BOUNDS_H
#define PEN_PLANNER_BOUNDS_H

#include "gen/planner/axes.h"
#include "gen/planner/trial.h"

/* The costs of the stages of a cut. */
struct pen_cut_costs {
  bool valid; /* false: the model cannot be cut so */
  uint32_t stage_count;
  double *forward, *backward; /* [stage_count]; backward: I and W, what both do only once */
  bool has_overlap;           /* a pair a|b has a cost of its own */
};

/* `cut` has room for the stages. */
void pen_cut_costs_of(const struct pen_trial *trial, struct pen_cut_costs *cut);

/* A lower bound of the makespan of a schedule with these stages, whatever its order, and whatever
 * the replicas do. `exact`: the stages are those of the schedule's pipeline; false: they are its
 * stages without recomputation, which may be cut elsewhere. `splits`: of its backward. */
double pen_pipeline_bound(const struct pen_cut_costs *cut, uint32_t ranks, uint32_t microbatches,
                          bool zigzag, bool splits, bool exact);

/* How the replicas of a pipeline share weights and gradients: as in struct pen_partition. */
struct pen_replica_terms {
  enum pen_sharding sharding;
  uint32_t shard_ranks;
  bool gathers_units, reduces_microbatches;
  uint32_t *host_of;
};

/* Lower bounds of a pipeline's candidates. */
struct pen_candidate_bounds {
  double *makespan;      /* [count] */
  uint64_t *arena_bytes; /* [count] of the rank with most */
};

/* The bounds for each of `count` ways to share, from the pipeline's trial without sharding, whose
 * order is composed. */
void pen_candidate_bounds_of(const struct pen_trial *trial, const struct pen_replica_terms *terms,
                             size_t count, struct pen_candidate_bounds *bounds);

#endif
