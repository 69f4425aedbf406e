/* lower.h: gen/lower turns a compute order into the lists of actions of every rank.
 *
 * In: an order, its timing, the partition and what is trained. Out: a struct pen_lowered for each
 * profile of the plan. The parts:
 *
 *   lower.c      adds sends, receives, waits, collectives and the end of the step
 *   messages.c   the messages and channels
 *   profiles.c   the profiles of a plan: train, eval, generation
 */
#ifndef PEN_LOWER_H
#define PEN_LOWER_H

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"

/* The lists of a profile, as tables of the plan that pen_layout() completes: actions without
 * program and frame, messages without bytes, offsets and credits, channels without credit counts.
 */
struct pen_lowered {
  uint32_t rank_count;
  uint32_t *count;            /* [rank_count] */
  struct pen_action **action; /* [rank_count][count] */
  struct pen_message *message;
  uint32_t message_count;
  struct pen_channel *channel;
  uint32_t channel_count;
};

/* Adds the communication and the end of the step (enum pen_profile_kind) to an order.
 * `timing` must be complete; by it every receive is posted when its message is sent. The actions of
 * all ranks have one common order, so no transport deadlocks. The
 * collectives of the replicas are where `timing` has them, or else after all compute actions. */
struct pen_lowered *pen_lower(const struct pen_order *order, const struct pen_partition *partition,
                              const struct pen_training *training, const struct pen_timing *timing,
                              int profile_kind);

/* pen_lower() for forwards alone, by a timing with equal costs: if a late stage were slower,
 * messages would accumulate before it in as many receive slots as there are microbatches, to no
 * advantage. */
struct pen_lowered *pen_lower_forward(const struct pen_order *order,
                                      const struct pen_partition *partition,
                                      const struct pen_training *training, int profile_kind);

/* pen_lower() for the actions of --actions, which contain sends and receives: adds the waits, the
 * collectives and the end of the step. pen_verify_actions() must accept the actions. */
struct pen_lowered *pen_lower_given(struct pen_action *const *action, const uint32_t *count,
                                    const struct pen_partition *partition,
                                    const struct pen_training *training, int profile_kind);

/* The order of the compute actions of lists of actions. */
struct pen_order *pen_order_of_actions(struct pen_action *const *action, const uint32_t *count,
                                       uint32_t rank_count);

#endif
