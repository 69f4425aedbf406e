/* internal.h: what control_tcp.c and control_start.c share. */
#ifndef PEN_CONTROL_INTERNAL_H
#define PEN_CONTROL_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/control/control_sync.h"
#include "runtime/control/control_tcp.h"
#include "runtime/control/rendezvous.h"
#include "runtime/control/start_state.h"

enum { PEN_CONTROL_POLL_US = 10000 };

struct pen_control_tcp {
  struct pen_control_config config;
  struct pen_shared *shared;
  struct pen_peers peers;
  struct pen_control_sync *sync;
  struct pen_start_offer *offers; /* of the server, then of its peers, when they have agreed */
  struct pen_start_state state;   /* on this */
  struct pollfd *polled; /* [peers.count + 1]: the last is the eventfd of the shared memory */
  void *buffer;          /* of a message's bytes that is sent: [buffer_bytes] */
  size_t buffer_bytes;   /* the most that a message has */
  pthread_t thread;
  uint64_t now_ns, heartbeat_ns; /* of the last pass; when to send the next */
  atomic_int ending;
};

/* Whether the ranks end, or do not start, because of a loss or an error. */
bool pen_control_is_aborted(const struct pen_control_tcp *tcp);

/* Whether a peer is sent messages: not one that arrives, before its place, nor one that has gone
 * and takes nothing. */
bool pen_control_is_told(const struct pen_peer_command *peer);

/* The connection is broken, with this errno. */
void pen_control_lose_link(struct pen_control_tcp *tcp, struct pen_peer_command *peer, int error);

/* The state that the ranks start from. */
void pen_control_send_state(struct pen_control_tcp *tcp, struct pen_peer_command *peer);

/* Takes what has arrived of a peer's next message, as pen_control_link_take(). */
int pen_control_take(struct pen_control_tcp *tcp, struct pen_peer_command *peer,
                     struct pen_control_message *message);

/* Applies a message that has been taken; the first host forwards it to the other hosts. */
void pen_control_apply(struct pen_control_tcp *tcp, uint32_t index,
                       const struct pen_control_message *message);

#endif
