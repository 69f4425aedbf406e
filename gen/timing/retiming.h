/* retiming.h: times one order again and again, each time with other costs. */
#ifndef PEN_RETIMING_H
#define PEN_RETIMING_H

#include <stdint.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/collectives.h"
#include "gen/timing/timing.h"

enum { PEN_RETIMING_LANES = 64 }; /* draws that are timed at once */

/* An action, or a pair a|b. Ends are in slots; slot 0 is the start of the step, and always 0. */
struct pen_retiming_node {
  uint32_t end, free_at; /* the slots of its end, and of that of what precedes it on its rank */
  uint32_t input[2];     /* the slots of what it waits for on other ranks; none: 0 */
  uint32_t factor[2];    /* of its costs; of a pair, those of both actions */
  double cost[2];        /* without a second action: 0 */
  double delay[2];       /* from the end of the input until its message arrives */
};

/* An order as a graph of dependencies, in an order in which all nodes can run. */
struct pen_retiming {
  uint32_t node_count, rank_count;
  uint32_t factor_count; /* pen_retiming_factor() of all actions, and the last for all that is not
                            an action: it is 1 */
  struct pen_retiming_node *node; /* [node_count] */
  uint32_t *last;                 /* [rank] the slot of the end of its last action */
  const double *after;            /* [rank] from then to the end of the step */
  double *end;                    /* [node_count + 1] the slots of pen_retime() */
};

/* The factor of an action's cost. It depends on the action alone, so that orders can be compared
 * under the same costs; B has that of I. */
uint32_t pen_retiming_factor(const struct pen_partition *partition,
                             const struct pen_compute *action);

/* The graph of an order, with the collectives of its timing, which is complete; the other arguments
 * are those of pen_simulate_collectives(). */
struct pen_retiming *pen_retiming(const struct pen_order *order, const struct pen_timing *timing,
                                  const struct pen_partition *partition,
                                  const struct pen_training *training,
                                  const struct pen_stage_cost *cost,
                                  const struct pen_collective_cost *collective_cost,
                                  double overlap_cost);
void pen_retiming_free(struct pen_retiming *retiming);

/* The makespan with each cost multiplied by its factor [factor_count]. O(actions). A pair whose
 * cost is given takes the factor of its first action. */
double pen_retime(struct pen_retiming *retiming, const double *factor);

/* The same in many draws at once and in single precision, with slots of the caller. */
void pen_retime_lanes(const struct pen_retiming *retiming, float (*end)[PEN_RETIMING_LANES],
                      const float (*factor)[PEN_RETIMING_LANES],
                      float makespan[PEN_RETIMING_LANES]);

#endif
