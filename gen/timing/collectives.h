/* collectives.h: places the collectives of the replicas in the lists of the ranks. */
#ifndef PEN_COLLECTIVES_H
#define PEN_COLLECTIVES_H

#include "gen/timing/collective_cost.h"
#include "gen/timing/timing.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

/* A collective, GRAD_READY or RESHARD of a rank. */
struct pen_placed_collective {
  uint32_t before; /* it precedes this compute action; the count of actions: it follows all */
  uint8_t kind;
  uint16_t stage;
};

/* Further values of `before`: after ADD_TIED_GRAD, after UPDATE. */
#define PEN_AFTER_TIED_GRAD (PEN_NONE - 1)
#define PEN_AFTER_UPDATE PEN_NONE

/* The collectives of every rank, in order. */
struct pen_collectives {
  uint32_t *count;                           /* [rank] */
  struct pen_placed_collective **collective; /* [rank][count] */
};

/* Where REDUCE_SCATTER and ALL_GATHER_GRAD are placed: in idle times that are long enough, in the
 * first idle time, after all actions (collectives.c). */
enum pen_collectives_rule {
  PEN_COLLECTIVES_FITTING,
  PEN_COLLECTIVES_FIRST,
  PEN_COLLECTIVES_LAST,
  PEN_COLLECTIVES_RULES
};

/* Places the collectives. `timing` is that of the actions alone, `cost` [stage]; LAST uses neither.
 * NULL: there are none (one replica; or a forward profile whose weights are not sharded). */
struct pen_collectives *pen_collectives_of(const struct pen_order *order,
                                           const struct pen_partition *partition,
                                           const struct pen_training *training,
                                           const struct pen_timing *timing,
                                           const struct pen_collective_cost *cost,
                                           enum pen_collectives_rule rule, int profile_kind);

/* The time that a stage's collectives take at least in a step, whatever the order of the actions.
 */
struct pen_exchange_least {
  double before; /* UNSHARD: before the stage's first action */
  double after;  /* after its gradient is complete */
};

/* [stage]; NULL: there are none, as pen_collectives_of(). */
struct pen_exchange_least *pen_exchange_least(const struct pen_partition *partition,
                                              const struct pen_training *training,
                                              const struct pen_collective_cost *cost,
                                              int profile_kind);

#endif
