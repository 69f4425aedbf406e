/* transport.h: how the actions of a plan reach other ranks: one interface, which shm.c, ofi.c,
 * ipc.c and nccl.c implement. A rank has one transport for each profile that it runs.
 *
 * Every call is ordered on the rank's compute stream (kernels/device.h). Over shm, whose device is
 * the CPU, a call is complete when it returns: it may block, and returns false when the run was
 * aborted meanwhile. Over ipc and nccl a call is enqueued, does not block, and returns true; what
 * it enqueues is the same in every step, so that a step can be captured as a graph. After connect()
 * nothing allocates.
 *
 * An enqueued message is sent on a stream of the transport's own, so that the rank continues
 * computing, or where steps are serial on the compute stream; before an action overwrites the
 * source of a message, the executor calls wait_sent() (runtime/exec/send_hazards.h). */
#ifndef PEN_TRANSPORT_H
#define PEN_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "runtime/comm/endpoint.h"
#include "runtime/plan/plan.h"

struct pen_transport;

/* What a rank exchanges with another member of one of its groups; bytes may be 0. */
struct pen_sendrecv {
  int group;
  uint32_t member;
  uint64_t receive_offset, receive_bytes; /* in the member's arena */
  unsigned char *to;                      /* where they come */
  uint64_t send_offset, send_bytes;       /* in this rank's arena */
  uint64_t target_offset;                 /* where they go in the member's arena */
};

struct pen_transport_ops {
  const char *name; /* as the topology's cluster.transport */

  /* ---- before the seal ---- */
  /* Publishes how other ranks reach this one; after a barrier, reaches them. They fail with what
   * the device or the library says. Of a rank's first transport both are called, of the others only
   * connect(), which takes over the first one's connections. */
  void (*export_handles)(struct pen_transport *transport);
  void (*connect)(struct pen_transport *transport);

  /* ---- actions; a message is an index into the profile's ---- */
  /* Before a step's first action, by its number in the run; null where calls are enqueued. */
  void (*begin_step)(struct pen_transport *transport, uint64_t run_step);
  /* SEND_*: waits until the message's target is free, copies it there, signals the receiver. */
  bool (*send)(struct pen_transport *transport, uint32_t message);
  /* RECV_*: the message's target is free once the sends listed, which read from there, are done. */
  bool (*receive)(struct pen_transport *transport, uint32_t message, const uint32_t *sends,
                  uint32_t send_count);
  /* WAIT_*: what follows waits for the message. */
  bool (*wait)(struct pen_transport *transport, uint32_t message);
  /* What follows may overwrite the message's source. */
  void (*wait_sent)(struct pen_transport *transport, uint32_t message);
  /* PUBLISH: sends this rank's entries of the step's statistics to the ranks that read them.
   * WAIT_NORM: what follows waits for those of all ranks. */
  bool (*publish)(struct pen_transport *transport);
  bool (*gather)(struct pen_transport *transport);
  /* After a step's last action: what follows waits for all that the transport does on streams of
   * its own. */
  void (*end_step)(struct pen_transport *transport);

  /* ---- collectives, on collective_stream; `group`: a coordinate, PEN_DATA or PEN_TENSOR ---- */
  /* What follows waits until each other member has ended `count` collectives of this step; PEN_NONE
   * (PEN_TENSOR always): as many as this one. */
  bool (*wait_group)(struct pen_transport *transport, int group, uint32_t count);
  void (*signal_group)(struct pen_transport *transport, int group); /* this rank has ended one */
  /* The arena of another member of any group. What other data ranks read, and what other tensor
   * ranks write, is in its first shared_bytes. Null: only sendrecv() reaches it. */
  unsigned char *(*member_arena)(struct pen_transport *transport, int group, uint32_t member);
  /* Between group_begin() and group_end() all are started together; no bytes are received where
   * others are received or sent. All members ask for the same in one order, each from its side. */
  void (*group_begin)(struct pen_transport *transport);
  void (*sendrecv)(struct pen_transport *transport, const struct pen_sendrecv *sendrecv);
  void (*group_end)(struct pen_transport *transport);

  /* ---- for asynchronous devices ---- */
  /* The one stream on which what an action sends is sent, in the order of actions; null: the action
   * sends nothing, or not in order. */
  void *(*send_stream)(const struct pen_transport *transport, const struct pen_action *action);
  /* Why a step cannot be captured, or null. After a capture: the error of the transport's calls in
   * it, which is cleared, or null. Then whether all ranks launch a graph, where all must do the
   * same; blocks until all have called it. */
  const char *(*cannot_capture)(struct pen_transport *transport);
  const char *(*clear_error)(struct pen_transport *transport);
  bool (*all_captured)(struct pen_transport *transport, bool captured);
  /* The asynchronous error, or null; polled while the host waits for a step. *peer: the rank that
   * it is about, maybe this one. */
  const char *(*error)(struct pen_transport *transport, uint32_t *peer);
  /* The rank leaves before the end: releases what would wait for others. */
  void (*abort)(struct pen_transport *transport);
};

/* Which actions of the profile send, receive and gather: for enqueued transports. */
struct pen_transport_actions {
  bool *gathers; /* [rank_count]: which ranks have an action WAIT_NORM */
  bool all_gather;
  uint32_t *sent_by, *received_by; /* [messages]: index of the sender's SEND, the receiver's RECV */
  uint32_t collective_count;       /* of the rank; 0 with one replica */
  uint32_t *collectives;    /* [collective_count + 1]: their action indices, from entry 1 on */
  uint32_t end_collectives; /* how many of them the peers must have ended at a step's end */
};

struct pen_transport {
  const struct pen_transport_ops *ops;
  struct pen_endpoint *endpoint;
  const struct pen_plan *plan;
  const struct pen_profile *profile;
  const struct pen_shared *shared;
  uint32_t rank, replica;
  const struct pen_device *device;
  void *stream;                      /* compute stream */
  void *collective_stream;           /* of collectives: the same, or that of those in programs */
  bool serial;                       /* all is enqueued on the compute stream; may change */
  unsigned char *arena;              /* the rank's */
  const struct pen_transport *first; /* the rank's first transport; null: this one is */
  bool announces;                    /* prints what was found, without --quiet */
  bool rendezvous;       /* collectives of peers run together; messages are sent in no one order */
  uint64_t profile_step; /* steps of the profile that have ended, in the run */
  struct pen_transport_actions actions;
};

/* What a transport is opened with; fields as in struct pen_transport. */
struct pen_transport_config {
  struct pen_endpoint *endpoint;
  const struct pen_profile *profile;
  const struct pen_device *device;
  void *stream;
  const struct pen_transport *first;
  bool announces;
};

/* Opens the plan's transport; for a rank alone on an asynchronous device, one that does nothing.
 * Fails where this binary was linked without it. Allocates. */
struct pen_transport *pen_transport_open(const struct pen_transport_config *config);

/* Allocates the rank's arena on an asynchronous device that is open, where the plan's transport can
 * reach it. Fails where there is too little memory. */
void *pen_transport_allocate(const struct pen_plan *plan, uint32_t rank,
                             const struct pen_device *device);

#endif
