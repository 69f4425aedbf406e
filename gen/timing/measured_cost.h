/* measured_cost.h: costs measured on a machine, which replace those of the topology: of the stages
 * of a deployment (penstock-NAME train --measure FILE: version 1), or of the blocks of a model
 * (penstock-NAME measure: version 2), for any cut, schedule and microbatch that were measured. */
#ifndef PEN_MEASURED_COST_H
#define PEN_MEASURED_COST_H

#include "gen/timing/cost.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

struct pen_measured {
  const char *path;
  uint32_t version;
  struct pen_stage_cost *cost; /* [stage_count], in milliseconds */
  double overlap; /* the cost of a pair a|b; below 0: not in the file, and it is the sum */
  /* Of version 1: what was measured, to be checked. */
  double step; /* the measured time of the plan's computation, in milliseconds */
  uint32_t microbatch, sequence, stage_count;
  uint64_t *parameters; /* [stage_count] */
  uint8_t *recompute;   /* [stage_count] enum pen_recompute_kind */
  uint8_t model_digest[PEN_DIGEST_BYTES];
  /* Of version 2: what an element takes in UPDATE and in NORM, in milliseconds. */
  double update_element, norm_element;
  /* Likewise: the topology with the costs of collectives that were measured; null: none were. */
  const struct pen_topology *collectives;
};

/* Reads and checks the file. A backward that was measured whole is divided in proportion to the
 * stage's flops; one that was measured whole and split also gives the cost of the work that I and W
 * both do. Fails: 66 absent, 65 with `FILE:LINE: reason` if it is not JSON, else with
 * `FILE: stages[2].forward: what is allowed`, also if the number of stages is not that of the plan.
 */
struct pen_measured *pen_measured_read(const char *path, const struct pen_partition *partition,
                                       struct pen_graph *const *graph);

/* Fails (65) if the file was measured on another model, with other shapes, or with other stages. */
void pen_measured_check(const struct pen_measured *measured, const struct pen_plan *plan);

#endif
