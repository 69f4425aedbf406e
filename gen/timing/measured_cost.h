/* measured_cost.h: costs that a deployment has measured (penstock-NAME train --measure FILE), in
 * place of the topology's. */
#ifndef PEN_MEASURED_COST_H
#define PEN_MEASURED_COST_H

#include "gen/timing/cost.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

struct pen_measured {
  const char *path;
  struct pen_stage_cost *cost; /* [stage_count], in milliseconds */
  double overlap; /* what a pair a|b takes; below 0: the file does not say, and it takes the sum */
  double step;    /* what the measured plan's computation took, in milliseconds */
  uint32_t microbatch, sequence, stage_count;
  uint64_t *parameters; /* [stage_count] */
  bool *recomputes;     /* [stage_count] */
  uint8_t model_digest[PEN_DIGEST_BYTES];
};

/* Reads and checks the file; a backward that was measured as a whole is divided as the stage's
 * flops are; measured whole and in parts, it says what the parts share where they share anything.
 * Ends the generator: 66 absent, 65 with `FILE:LINE: reason` where it is no JSON, else `FILE:
 * stages[2].forward: what is allowed`, also where it has another number of stages than the plan. */
struct pen_measured *pen_measured_read(const char *path, const struct pen_partition *partition,
                                       struct pen_graph *const *graph);

/* Ends the generator (65) when the file was measured on another model, on other shapes, or on
 * stages that hold something else. */
void pen_measured_check(const struct pen_measured *measured, const struct pen_plan *plan);

#endif
