/* bounds.h: what no candidate of a pipeline can beat, in time and in memory. */
#ifndef PEN_PLANNER_BOUNDS_H
#define PEN_PLANNER_BOUNDS_H

#include "gen/partition/partition.h"
#include "gen/planner/cuts.h"
#include "gen/topology/topology.h"

/* The members of a collective of a rank: how many of the others are on a member's host. */
struct pen_members {
  uint32_t count, least_near, most_near;
};

/* How the data ranks of a pipeline share weights and gradients: as in struct pen_partition. */
struct pen_sharing_terms {
  enum pen_sharding sharding;
  bool gathers_units, reduces_microbatches;
  struct pen_members *shards, *groups; /* [rank]: those that share, and those with the same shard */
};

/* Those of a process's group; host_of is [process], NULL: one host. */
struct pen_members pen_members_of(const struct pen_group_sizes *sizes, const uint32_t *host_of,
                                  uint32_t process, int group);

/* A pipeline without its stages. */
struct pen_pipeline_shape {
  struct pen_topology topology; /* what the rule of the schedule reads */
  uint32_t ranks, stages_per_rank, microbatches, replicas;
  const double *speed; /* [ranks] cluster.speed; NULL: all 1 */
  bool zigzag, splits; /* its placement is "v"; its backward is split */
};

struct pen_pipeline_shape pen_pipeline_shape_of(const struct pen_planner *planner,
                                                const struct pen_choice *pipeline);

/* A lower bound of the step of all candidates of a pipeline. `exact`: the stages are the
 * pipeline's; false: they may be cut elsewhere. */
double pen_pipeline_bound(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                          bool exact);

/* Lower bounds of a pipeline's candidates. */
struct pen_candidate_bounds {
  double *step;          /* [count] */
  uint64_t *arena_bytes; /* [count] of the rank with most */
};

/* The bounds for each of `count` ways to share. */
void pen_candidate_bounds_of(const struct pen_cut *cut, const struct pen_pipeline_shape *shape,
                             const struct pen_sharing_terms *terms, size_t count,
                             struct pen_candidate_bounds *bounds);

#endif
