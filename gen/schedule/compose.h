/* compose.h: the compute order that a schedule's rule makes. */
#ifndef PEN_COMPOSE_H
#define PEN_COMPOSE_H

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"

/* The compute order of the topology's schedule, by the rule of its row in schedules.def. Fails (78)
 * when the settings do not suit the schedule; the message names the numbers. */
struct pen_order *pen_compose(const struct pen_topology *topology,
                              const struct pen_partition *partition);

/* Whether it has a pair a|b. */
bool pen_order_has_pair(const struct pen_order *order);

/* Forwards only: the order of eval on the same placement. */
struct pen_order *pen_compose_forward(const struct pen_partition *partition);

#endif
