/* lower.h: turns a compute order into the actions of every rank: adds sends, receives, waits,
 * collectives and the end of the step.
 *
 * In: an order, its timing and the partition. Out: a struct pen_lowered.
 */
#ifndef PEN_LOWER_H
#define PEN_LOWER_H

#include "gen/partition/training.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"

/* Rows of every rank without frames, messages without places and credits. */
struct pen_lowered {
  uint32_t rank_count;
  uint32_t *count;
  struct pen_action **action; /* [rank_count][count]; program and frame are 0 */
  struct pen_message *message;
  uint32_t message_count;
  struct pen_channel *channel;
  uint32_t channel_count;
};

/* Adds sends, receives and waits in one global order (a message enters both ranks' lists at the
 * same turn), so that every model of section 3.8 is free of deadlock by construction; and the
 * step's end (kind: PEN_TRAIN or PEN_EVAL). By `timing`, which must be complete, every receive
 * stands when its message leaves. Replicas exchange as `timing` says, or else at the end. */
struct pen_lowered *pen_lower(const struct pen_order *order, const struct pen_partition *partition,
                              const struct pen_training *training, const struct pen_timing *timing,
                              int profile_kind);

/* The same for eval, as if every stage took equally long: where a late stage is the slowest,
 * messages would else pile up before it in as many slots as there are microbatches, and to no end.
 */
struct pen_lowered *pen_lower_forward(const struct pen_order *order,
                                      const struct pen_partition *partition,
                                      const struct pen_training *training);

/* The same from rows that somebody wrote (--actions): they already hold sends and receives; only
 * waits and the step's end are added. Needs rows that pen_verify_actions() accepts. */
struct pen_lowered *pen_lower_given(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition,
                                    const struct pen_training *training, int profile_kind);

/* The compute actions of rows, as an order that can be simulated. */
struct pen_order *pen_order_of_actions(struct pen_action *const *action, const uint32_t *count,
                                       uint32_t rank_count);

#endif
