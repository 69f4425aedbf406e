/* nccl_link.h: what nccl.c, which moves messages, and nccl_join.c, which makes ready for that
 * before the seal, share. */
#ifndef PEN_NCCL_LINK_H
#define PEN_NCCL_LINK_H

#include "runtime/device/link.h"
#include "runtime/device/nccl_api.h"
#include "runtime/comm/step_stats.h"

/* Since which version there are one-sided calls; they can be captured; the windows of a
 * communicator's ranks may differ in size. */
enum { PEN_PUTS_VERSION = 22900, PEN_CAPTURED_VERSION = 23000, PEN_SIZES_VERSION = 23200 };

/* A directed pair of ranks; all null for those of others. */
struct pen_pair {
  void *communicator, *stream;
  void *window; /* the receiver's arena, where it is written by puts; null: by sends */
};

struct pen_nccl_link {
  struct pen_link link;
  const struct pen_nccl_calls *calls;
  void *all;   /* communicator */
  void *peers; /* communicator of the rank's peers and itself, by replica; null with one replica */
  struct pen_pair *pairs; /* [channels] */
  void *ready;            /* event: the queue's stream, for what is to leave or to come */
  void **done;            /* [messages] events: sent, or come; null for others' messages */
  bool *credited;         /* [messages] by puts: the sender waits for word that the home is free */
  uint32_t rounds, put_count; /* put_count: pairs of whatever ranks that put, in all replicas */
  uint32_t asked;             /* which pair's trouble was looked for last */
  const char *no_puts;        /* why there are none, in words */
};

enum { PEN_SENDER, PEN_RECEIVER }; /* ranks in a pair's communicator */

static inline struct pen_nccl_link *pen_nccl_of(struct pen_link *link) {
  return (struct pen_nccl_link *)link;
}

static inline const struct pen_message *pen_message_of(const struct pen_link *link,
                                                       uint32_t index) {
  return &link->profile->messages[index];
}

static inline bool pen_is_mine(const struct pen_link *link, uint32_t channel) {
  return link->profile->channels[channel].from_rank == link->rank ||
         link->profile->channels[channel].to_rank == link->rank;
}

static inline double *pen_nccl_board_of(const struct pen_link *link) {
  return (double *)(link->queue->arena + link->plan->memory[link->rank].step_stats_offset);
}

/* How many numbers of the board WAIT_NORM sums: of several replicas, whole boards. */
static inline size_t pen_nccl_sum_count(const struct pen_plan *plan) {
  return plan->replica_count > 1 ? pen_step_stats_first(plan, plan->replica_count)
                                 : plan->weight_count;
}

/* Why this process's NCCL puts nothing, in words; null: it does. PEN_NCCL, of the environment, may
 * ask for sends; else fails (64). */
const char *pen_nccl_no_puts(const struct pen_nccl_calls *calls);

/* How much the rank's arena takes with that NCCL. */
size_t pen_nccl_arena_bytes(const struct pen_nccl_calls *calls, const struct pen_plan *plan,
                            uint32_t rank);

/* Fails, and says what, where a call of NCCL or of the device has failed, or something was not
 * made. */
void pen_nccl_must_be_well(struct pen_link *link, const void *made, const char *what);

/* Of each number, the sum over all ranks; blocks until all have called it. */
void pen_nccl_add_up(struct pen_link *link, double *numbers, size_t count);

/* Makes the communicators and windows, warms and registers. Allocates. */
void pen_nccl_join(struct pen_link *link);

#endif
