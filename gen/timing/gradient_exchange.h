/* gradient_exchange.h: where the replicas of a stage sum their gradients. */
#ifndef PEN_GRADIENT_EXCHANGE_H
#define PEN_GRADIENT_EXCHANGE_H

#include "gen/timing/timing.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "runtime/plan/plan.h"

/* What the exchange of a stage's gradients takes on its rank, in the unit of struct pen_stage_cost.
 */
struct pen_collective_cost {
  double reduce; /* REDUCE_SCATTER: add up the own shards of all replicas */
  double gather; /* ALL_GATHER_GRAD, ALL_GATHER_WEIGHT, UNSHARD: copy the shards of the others */
};

/* A row of the exchange between replicas, and before which compute action of its rank it stands;
 * past the last: behind all. */
#define PEN_AFTER_TIED_GRAD (PEN_NONE - 1)
#define PEN_AFTER_UPDATE PEN_NONE
struct pen_collective {
  uint32_t before; /* or one of these */
  uint8_t kind;
  uint16_t stage;
};

/* Those rows of every rank, in order. */
struct pen_collectives {
  uint32_t *count;             /* [rank] */
  struct pen_collective **row; /* [rank][count] */
};

/* Where sums and copies stand: in pauses that are long enough, in the first pause, behind all
 * actions (exchange.c). */
enum pen_collectives_rule {
  PEN_COLLECTIVES_FITTING,
  PEN_COLLECTIVES_FIRST,
  PEN_COLLECTIVES_LAST,
  PEN_COLLECTIVES_RULES
};

/* Where the replicas' gradients are summed. `timing` is that of the actions alone, `cost` [stage];
 * LAST wants neither. Null with one replica, and where nothing is trained. */
struct pen_collectives *pen_collectives_of(const struct pen_order *order,
                                           const struct pen_partition *partition,
                                           const struct pen_training *training,
                                           const struct pen_timing *timing,
                                           const struct pen_collective_cost *cost,
                                           enum pen_collectives_rule rule, int profile_kind);

#endif
