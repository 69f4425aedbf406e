/* nccl_connect.h: the state of the transport nccl, and what it makes before the seal. */
#ifndef PEN_NCCL_CONNECT_H
#define PEN_NCCL_CONNECT_H

#include "runtime/comm/nccl_api.h"
#include "runtime/comm/step_stats.h"
#include "runtime/comm/transport_base.h"

/* Since which version there are one-sided calls; they can be captured; the windows of a
 * communicator's ranks may differ in size. */
enum { PEN_PUTS_VERSION = 22900, PEN_CAPTURED_VERSION = 23000, PEN_SIZES_VERSION = 23200 };

/* A directed pair of ranks; all null for those of others. */
struct pen_pair {
  void *communicator, *stream;
  void *window; /* the receiver's arena, where it is written by puts; null: by sends */
};

struct pen_nccl_transport {
  struct pen_transport base;
  const struct pen_nccl_calls *calls;
  void *all;   /* communicator */
  void *peers; /* communicator of the rank's peers and itself, by replica; null with one replica */
  struct pen_pair *pairs;     /* [channels] */
  void *ready;                /* event: the compute stream, for what is to be sent or received */
  void **done;                /* [messages] events: sent, or received; null for others' messages */
  bool *credited;             /* [messages] by puts: the sender waits until the target is free */
  uint32_t rounds, put_count; /* put_count: pairs of any ranks that put, in all replicas */
  uint32_t polled;            /* which pair's asynchronous error was read last */
  const char *no_puts;        /* why there are none */
};

enum { PEN_SENDER, PEN_RECEIVER }; /* ranks in a pair's communicator */

static inline struct pen_nccl_transport *pen_nccl_of(struct pen_transport *transport) {
  return (struct pen_nccl_transport *)transport;
}

/* Whether the rank is one of the channel's two. */
static inline bool pen_nccl_has_channel(const struct pen_transport *transport, uint32_t channel) {
  return transport->profile->channels[channel].from_rank == transport->rank ||
         transport->profile->channels[channel].to_rank == transport->rank;
}

/* The step's statistics on the device. */
static inline double *pen_nccl_step_stats(const struct pen_transport *transport) {
  return (double *)(transport->arena + transport->plan->memory[transport->rank].step_stats_offset);
}

/* How many numbers of the statistics WAIT_NORM sums: with several replicas, all. */
static inline size_t pen_nccl_sum_count(const struct pen_plan *plan) {
  return plan->replica_count > 1 ? pen_step_stats_first(plan, plan->replica_count)
                                 : plan->weight_count;
}

/* Why this process's NCCL puts nothing; null: it does. PEN_NCCL, of the environment, may ask for
 * sends; fails (64) when it asks for something else. */
const char *pen_nccl_no_puts(const struct pen_nccl_calls *calls);

/* How many bytes the rank's arena takes with that NCCL. */
size_t pen_nccl_arena_bytes(const struct pen_nccl_calls *calls, const struct pen_plan *plan,
                            uint32_t rank);

/* Fails, and says what, when a call of NCCL or of the device has failed, or something was not
 * made. */
void pen_nccl_check(struct pen_transport *transport, const void *made, const char *what);

/* Replaces each number with its sum over all ranks; blocks until all have called it. */
void pen_nccl_sum_numbers(struct pen_transport *transport, double *numbers, size_t count);

/* Makes the communicators and windows, registers the arena, sends first messages. Allocates. */
void pen_nccl_connect(struct pen_transport *transport);

#endif
