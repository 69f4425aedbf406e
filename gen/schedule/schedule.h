/* schedule.h: the compute order of every rank.
 *
 * In: a topology and a partition. Out: a struct pen_order: a list of F, B, I and W for each rank,
 * without messages, times or memory. Nothing in this folder checks that an order can finish: the
 * simulation and the verifier do.
 *
 *   compose.c      finds the schedule's rule and runs it; one file a rule: gpipe.c, 1f1b.c, ...
 *   torch_csv.c    reads and writes orders as PyTorch's compute-only CSV
 *   action_text.c  reads and writes lowered orders as text
 *   list.c         --list-schedules
 */
#ifndef PEN_SCHEDULE_H
#define PEN_SCHEDULE_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/topology.h"

/* ---- compose.c ---- */

/* The compute order of the topology's schedule, by the rule of its row in schedules.def. Fails (78)
 * when the settings do not suit the schedule; the message names the numbers. The schedules `file`
 * and `search` have no rule. */
struct pen_order *pen_compose(const struct pen_topology *topology,
                              const struct pen_partition *partition);

/* Forwards only: the order of eval on the same placement. */
struct pen_order *pen_compose_forward(const struct pen_partition *partition);

/* Whether the schedule's rule accepts these numbers; the columns of its row are not considered. */
bool pen_schedule_suits(const struct pen_schedule *schedule, uint32_t ranks,
                        uint32_t stages_per_rank, uint32_t microbatches);

/* Whether the order has a pair a|b. */
bool pen_order_has_pair(const struct pen_order *order);

/* ---- list.c: the table as text, for --list-schedules and the manual ---- */

/* What P, s, m, w, bubble and peak mean. */
extern const char pen_schedule_notation[];
/* `2 a rank, in a V`. */
const char *pen_schedule_stages(const struct pen_schedule *schedule);
/* `expression`, the row's bubble or peak, and where it holds. */
const char *pen_schedule_figure(const struct pen_schedule *schedule, const char *expression);
void pen_schedules_list(FILE *out);

#endif
