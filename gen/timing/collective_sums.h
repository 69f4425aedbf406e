/* collective_sums.h: the collectives of each rank in a simulated step, by kind. */
#ifndef PEN_COLLECTIVE_SUMS_H
#define PEN_COLLECTIVE_SUMS_H

#include <stdint.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

enum pen_collective_kind {
#define PEN_COLLECTIVE_KIND(name, meaning) PEN_KIND_##name,
#include "gen/timing/collective_kinds.def"
  PEN_COLLECTIVE_KINDS
};

/* The collectives of one kind and rank. */
struct pen_collective_sum {
  uint32_t calls; /* 0: the rank has none */
  uint64_t bytes; /* that the rank of replica 0 sends in a step */
  /* The time that they add to the rank's own: before a compute action, the part in which that
   * action could already run; after the last, the part in which no rank computes any more. */
  double exposed;
};

/* [rank * PEN_COLLECTIVE_KINDS + kind]. `order` and `timing` contain the collectives, if there are
 * any, whose costs are `collective` [stage] (NULL: there are none); the messages of a tied matrix
 * are those of the first profile of `plan`. */
struct pen_collective_sum *pen_collective_sums(
    const struct pen_plan *plan, const struct pen_order *order, const struct pen_timing *timing,
    const struct pen_partition *partition, const struct pen_training *training,
    const struct pen_stage_cost *cost, const struct pen_collective_cost *collective);

#endif
