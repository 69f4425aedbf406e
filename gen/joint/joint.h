/* joint.h: partition.balance = "joint" and memory.recompute = "auto": chooses what the plan leaves
 * open, all together, for the least time of a step within memory.limit_mib: the makespan; by costs
 * of measured blocks with norm and optimizer, which another cut gives to other ranks.
 *
 * In: the topology, and costs by it or measured. Out: a struct pen_joint_choice: the cut of blocks
 * into stages, what each stage recomputes and, with the schedule "search", the order.
 *
 * The 99th percentile of the makespan is left to gen/search/: cut and recomputation are those for
 * the least makespan, whatever the effort, so that more of it is never worse.
 *
 *   joint.c        the pass: starts, rounds of work, the final check of memory
 *   stage_cache.c  graph and cost of each run of blocks as a stage
 *   judge.c        the makespan and the memory of one choice, by simulating an order
 *   level.c        cuts that give the ranks equal work
 *   exhaust.c      all cuts of a small model, by branch and bound
 *   improve.c      local search over cuts and recomputation
 *   order.c        with the schedule "search": the orders
 */
#ifndef PEN_JOINT_H
#define PEN_JOINT_H

#include "gen/search/search.h"
#include "gen/timing/measured_cost.h"
#include "gen/topology/topology.h"

struct pen_joint_choice {
  const uint32_t *first_block; /* [stage] NULL: as the topology divides the model */
  const uint8_t *recompute;    /* [stage] enum pen_recompute_kind */
  enum pen_placement placement;
  const struct pen_search *search; /* with the schedule "search": the order; else NULL */
  bool goes_on; /* pipeline.objective is "p99": the search (gen/search/) continues from it */
};

struct pen_joint_input {
  const struct pen_topology *topology;
  const struct pen_measured *measured; /* the costs of a file, for any cut; NULL: the topology's */
  struct pen_search_effort effort;
};

/* The topology with the placement of a choice and what its stages recompute. */
const struct pen_topology *pen_joint_topology(const struct pen_topology *topology,
                                              const struct pen_joint_choice *choice);

/* Whether the topology leaves something to this pass. */
bool pen_joint_applies(const struct pen_topology *topology);

/* The choice depends on the input alone, no clock. A larger effort with the same seed gives no
 * longer step. Where nothing fits in the memory limit: the choice that exceeds it least. */
struct pen_joint_choice pen_joint(const struct pen_joint_input *input);

#endif
