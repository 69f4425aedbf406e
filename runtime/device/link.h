/* link.h: how the rows of a queue (queue.h) reach other ranks: what transport.h is for a rank on
 * the CPU, in calls that are enqueued. Nothing here waits on the host once it is connected, and
 * nothing allocates. What an implementation enqueues may not differ from step to step.
 *
 * A message leaves on a stream of the link's own, so that the rank goes on computing: SEND is
 * behind what was on the queue's stream before it, and the first row that writes over the message's
 * source waits until it has left (reuse.h). All that a link has put on streams of its own is joined
 * to the queue's at the end of a step, as a graph demands. */
#ifndef PEN_LINK_H
#define PEN_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/device/stream_executor.h"
#include "runtime/device/send_hazards.h"

struct pen_link;

/* What goes between this rank and a peer: offsets in the giver's arena; bytes may be 0. */
struct pen_sendrecv {
  uint32_t replica; /* the peer's */
  uint64_t theirs, their_bytes;
  unsigned char *to; /* where theirs come */
  uint64_t ours, our_bytes;
};

struct pen_link_kind {
  const char *name; /* as the topology's cluster.transport */
  /* Both before the seal, and the first before a barrier that the second comes after: tells the
   * others how to reach this rank; reaches them. They fail with what the device or the library
   * says. A rank has a link for each profile that it runs; but for the first, whose profile has the
   * channels of the others, connect() alone is called, and takes over the first one's connections
   * and streams. */
  void (*offer)(struct pen_link *link);
  void (*connect)(struct pen_link *link);

  /* Rows SEND_F, SEND_B, SEND_G, SEND_V: behind what is on the queue's stream, when the home is
   * free: the message to its home, then the news of it. */
  void (*send)(struct pen_link *link, uint32_t message);
  /* What comes on the queue's stream from here on may write where that message came from. */
  void (*reuse)(struct pen_link *link, uint32_t message);
  /* Rows RECV_F ...: the home is free from here on, once the messages that the row's list in
   * `reuse` has are gone from there. */
  void (*credit)(struct pen_link *link, uint32_t message, uint32_t row);
  /* Rows WAIT_F ...: what comes on the queue's stream waits for the message. */
  void (*wait)(struct pen_link *link, uint32_t message);
  /* Row PUBLISH: own entries of the weights to the boards of the ranks that gather; WAIT_NORM: what
   * comes waits for all ranks' entries. */
  void (*publish)(struct pen_link *link);
  void (*gather)(struct pen_link *link);
  /* Rows of the exchange between replicas (plan.h), where there are several. What comes on the
   * queue's stream waits until every peer has ended the first `count` of them in this step; this
   * rank has ended another one. */
  void (*peers_reached)(struct pen_link *link, uint32_t count);
  void (*exchanged)(struct pen_link *link);
  /* The arena of the peer in a replica, of which the first shared_bytes are readable in such rows;
   * one's own for the own replica. Null: what is wanted of a peer must come by swaps. */
  const unsigned char *(*peer_arena)(struct pen_link *link, uint32_t replica);
  /* Swaps with peers, on the queue's stream; those between begin and end go at once, and no bytes
   * come where others come or leave. All peers' rows ask for the same, each from its side. */
  void (*swap_begin)(struct pen_link *link);
  void (*swap)(struct pen_link *link, const struct pen_sendrecv *swap);
  void (*swap_end)(struct pen_link *link);
  /* The one stream on which what a row sends leaves, in the order of rows, once the row was
   * enqueued; null: nothing of it does, or not in order. */
  void *(*leaving)(const struct pen_link *link, const struct pen_action *row);
  /* Behind the last row: what comes on the queue's stream waits for all that the link does
   * elsewhere. */
  void (*end)(struct pen_link *link);

  /* A step as one graph. Before its rows are captured: why they cannot be, in words, or null.
   * Behind it: what of the link's calls went wrong in the capture, which is forgotten, or null.
   * Then whether all ranks replay a graph, where the link must have all do the same; blocks until
   * all have called it. */
  const char *(*uncaptured)(struct pen_link *link);
  const char *(*forget)(struct pen_link *link);
  bool (*all_captured)(struct pen_link *link, bool captured);

  /* What is wrong with it, in words, or null; asked while the host waits for a step. *peer: the
   * rank that it is about, perhaps the own. */
  const char *(*error)(struct pen_link *link, uint32_t *peer);
  /* The rank leaves before the end: lets go of what would wait for others. */
  void (*abort)(struct pen_link *link);
};

struct pen_link {
  const struct pen_link_kind *kind;
  struct pen_stream_state *queue;
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_shared *shared;
  uint32_t rank, replica;
  struct pen_send_hazards reuse; /* of the rank's rows */
  bool *gathers;                 /* [rank_count]: which ranks have a row WAIT_NORM */
  bool all_gather;
  uint32_t *sent_by, *received_by; /* [messages]: the sender's row that sends it, the receiver's
                                      that receives it */
  uint32_t exchange_count; /* rows of the exchange between replicas in the rank's list; 0 with one
                              replica */
  uint32_t *exchange_rows; /* [exchange_count + 1]: these rows, counted from 1 */
  uint32_t end_exchange;   /* how many of them the peers must have ended at a step's end */
  bool meets; /* what a row of the exchange wants of peers comes when they have come to the same
                 row, and not before */
  const struct pen_link *first; /* of the rank's first profile, which is connected: this one uses
                                   its connections; null: this is it */
  bool announces;               /* rank 0 says what it found */
};

/* The process that a rank of this replica is, and this rank's own. */
static inline uint32_t pen_link_process(const struct pen_link *link, uint32_t rank) {
  return link->replica * link->plan->rank_count + rank;
}
static inline uint32_t pen_link_self(const struct pen_link *link) {
  return pen_link_process(link, link->rank);
}

/* Makes the link of the plan's transport for a process of several, by its global rank. Fails where
 * this binary was linked without it. Allocates. */
struct pen_link *pen_link_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                               const struct pen_shared *shared, uint32_t global);

/* The rank's arena, on a device that is open, of memory that the link can reach; all of it is the
 * rank's. Fails where there is not so much. */
void *pen_link_allocate(const struct pen_plan *plan, uint32_t rank,
                        const struct pen_device *device);

/* What implementations share: *link filled but for its kind. Allocates. */
void pen_link_fill(struct pen_link *link, struct pen_stream_state *queue,
                   const struct pen_profile *profile, const struct pen_shared *shared,
                   uint32_t global);

/* Whether a process wants this one's entries of the board. UPDATE reads those of all replicas;
 * without it each replica is by itself, and may be any number of steps ahead of the others. */
bool pen_link_gathers(const struct pen_link *link, uint32_t process);

/* The next run of the board's entries from *past on that are the rank's own (else: that are
 * others'), [*first, *past). False: no more. A rank's stand in runs, one or two a stage. */
bool pen_link_entries(const struct pen_link *link, bool own, uint32_t *first, uint32_t *past);

/* For links whose calls anyone may capture, each for himself: no reason, nothing forgotten,
 * `captured`. */
const char *pen_link_captures(struct pen_link *link);
bool pen_link_captured(struct pen_link *link, bool captured);

/* ipc.c: ranks of one host. nccl.c: ranks of any hosts; null where this binary was linked without
 * the library, whose calls may also be given. */
struct pen_link *pen_ipc_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                              const struct pen_shared *shared, uint32_t global);
struct pen_link *pen_nccl_open(struct pen_stream_state *queue, const struct pen_profile *profile,
                               const struct pen_shared *shared, uint32_t global);
void *pen_nccl_allocate(const struct pen_plan *plan, uint32_t rank,
                        const struct pen_device *device);
struct pen_nccl_calls;
struct pen_link *pen_nccl_open_with(const struct pen_nccl_calls *calls,
                                    struct pen_stream_state *queue,
                                    const struct pen_profile *profile,
                                    const struct pen_shared *shared, uint32_t global);

#endif
