/* control_sync.h: what a host sends to the others, and applies of what they send, so that the
 * memory of comm/shared_control.h is equal on all hosts: the words of shared_control.def, step
 * statistics, and checksums of checkpoints.
 *
 * Each word has one writer, or changes only once from zero. So each host sends what its own ranks
 * wrote, data before the counters that guard it, and applies what it receives in that order. */
#ifndef PEN_CONTROL_SYNC_H
#define PEN_CONTROL_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

enum pen_control_message_kind {
  PEN_MESSAGE_VERDICT, /* number: 0, or the status with which a command must exit */
  PEN_MESSAGE_PLACE,   /* struct pen_place: of the command that sends it */
  PEN_MESSAGE_PLACES,  /* struct pen_membership.places */
  PEN_MESSAGE_START,   /* struct pen_start_offer, pen_start_state; then, while ranks run: */
  PEN_MESSAGE_RANK,    /* the words of a rank */
  PEN_MESSAGE_STEP_STATS,
  PEN_MESSAGE_CHECKSUMS,
  PEN_MESSAGE_SAMPLED, /* pen_sampled_of() */
  PEN_MESSAGE_RESULTS, /* the rank's block of struct pen_results, for its reader alone */
  PEN_MESSAGE_PART,    /* struct pen_mailbox_part: at most PEN_MAILBOX_PART_BYTES */
  PEN_MESSAGE_RUN,     /* the words that rank 0 writes */
  PEN_MESSAGE_FAILURE, /* rank: which was lost; number: struct pen_failure.host; its line */
  PEN_MESSAGE_REQUESTS,
  PEN_MESSAGE_GOODBYE,
  PEN_MESSAGE_HEARTBEAT,
  PEN_MESSAGE_KINDS
};

/* The header of a message; `bytes` follow it. */
struct pen_control_message {
  uint32_t kind, rank; /* rank: whose, in RANK, STEP_STATS, CHECKSUMS, SAMPLED, RESULTS, PART,
                          FAILURE */
  uint64_t number;     /* STEP_STATS, SAMPLED, RESULTS: the step; PART: its offset */
  uint64_t bytes;
};

struct pen_control_sync;

/* For the ranks `local` of a plan. Allocates; fails (71). */
struct pen_control_sync *pen_control_sync_open(const struct pen_plan *plan,
                                               const struct pen_shared *shared,
                                               struct pen_rank_set local);
void pen_control_sync_close(struct pen_control_sync *sync);

/* The most bytes that follow the header of a message of this kind; SIZE_MAX: none such comes while
 * ranks run. */
size_t pen_control_sync_bytes(const struct pen_control_sync *sync, uint32_t kind);

/* Whether a message of another host has the bytes and the place that its kind has. */
bool pen_control_sync_fits(const struct pen_control_sync *sync,
                           const struct pen_control_message *message);

/* Calls send() with a message for each change of the local ranks since the last call.
 */
void pen_control_sync_changes(struct pen_control_sync *sync,
                              void (*send)(void *context, const struct pen_control_message *message,
                                           const void *bytes),
                              void *context);

/* Applies a message of another host, of kind RANK to REQUESTS. `bytes` is aligned to 8. */
void pen_control_sync_apply(struct pen_control_sync *sync,
                            const struct pen_control_message *message, const void *bytes);

#endif
