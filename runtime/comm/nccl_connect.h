/* nccl_connect.h: the state of the transport nccl, and what it makes before the seal. */
#ifndef PEN_NCCL_CONNECT_H
#define PEN_NCCL_CONNECT_H

#include "runtime/comm/nccl_api.h"
#include "runtime/comm/step_stats.h"
#include "runtime/comm/transport_base.h"

/* The versions from which on one-sided calls exist; can be captured; and accept windows of
 * different sizes in a communicator. */
enum { PEN_PUTS_VERSION = 22900, PEN_CAPTURED_VERSION = 23000, PEN_SIZES_VERSION = 23200 };

/* A directed pair of ranks; all null for the pairs of other ranks. */
struct pen_pair {
  void *communicator, *stream;
  void *window; /* the receiver's arena, if it is written by puts; null: by sends */
};

struct pen_nccl_transport {
  struct pen_transport base;
  const struct pen_nccl_calls *calls;
  void *all;                    /* communicator */
  void *group[PEN_COORDINATES]; /* those of the rank's groups; null: of one, or not joined */
  struct pen_pair *pairs;       /* [channels] */
  void *ready;    /* event: the compute stream has reached what is to be sent or received */
  void **done;    /* [messages] events: sent, or received; null for others' messages */
  bool *credited; /* [messages] with puts: the sender waits until the target is free */
  uint32_t rounds, put_count; /* put_count: pairs that use puts, of all pipelines */
  uint32_t polled;            /* the pair whose asynchronous error was read last */
  const char *no_puts;        /* why there are no puts */
};

enum { PEN_SENDER, PEN_RECEIVER }; /* ranks in a pair's communicator */

static inline struct pen_nccl_transport *pen_nccl_of(struct pen_transport *transport) {
  return (struct pen_nccl_transport *)transport;
}

/* Whether the rank is one of the two of the channel. */
static inline bool pen_nccl_has_channel(const struct pen_transport *transport, uint32_t channel) {
  return transport->profile->channels[channel].from_rank == transport->rank ||
         transport->profile->channels[channel].to_rank == transport->rank;
}

/* The step's statistics on the device. */
static inline double *pen_nccl_step_stats(const struct pen_transport *transport) {
  return (double *)(transport->arena + transport->plan->memory[transport->rank].step_stats_offset);
}

/* How many numbers of the statistics WAIT_NORM sums: those of all replicas. */
static inline size_t pen_nccl_sum_count(const struct pen_plan *plan) {
  return pen_group_size(plan, PEN_DATA) > 1
             ? pen_step_stats_first(plan, pen_group_size(plan, PEN_DATA))
             : pen_entry_count(plan);
}

/* Why the NCCL of this process uses no puts; null: it does. PEN_NCCL in the environment may request
 * sends; fails (64) on other values. */
const char *pen_nccl_no_puts(const struct pen_nccl_calls *calls);

/* How many bytes the rank's arena occupies with that NCCL. */
size_t pen_nccl_arena_bytes(const struct pen_nccl_calls *calls, const struct pen_plan *plan,
                            uint32_t rank);

/* Fails, with what was done, when a call of NCCL or of the device has failed, or a handle is null.
 */
void pen_nccl_check(struct pen_transport *transport, const void *made, const char *what);

/* Replaces each number with its sum over all ranks; blocks until all have called it. */
void pen_nccl_sum_numbers(struct pen_transport *transport, double *numbers, size_t count);

/* Makes the communicators and windows, registers the arena, sends first messages. Allocates. */
void pen_nccl_connect(struct pen_transport *transport);

#endif
