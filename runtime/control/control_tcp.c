/* control_tcp.c: one control memory on several hosts (see control_tcp.h). */
#define _GNU_SOURCE
#include "runtime/control/internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"
#include "runtime/control/control_sync.h"
#include "runtime/control/listen_address.h"
#include "runtime/control/lost_hosts.h"
#include "runtime/control/rendezvous.h"

/* Changes that no rank waits for, such as which action a rank runs, are sent every
 * PEN_CONTROL_POLL_US. */
enum { GOODBYE_S = 5, CLOSES_S = 2 };

enum { HEARTBEAT_MS = 100 };

/* Bytes that a link has not taken: with UNSENT_WAIT this host's changes wait, and become fewer;
 * with UNSENT_MOST, since those of others do not wait, the link is lost. */
enum { UNSENT_WAIT = 1 << 18, UNSENT_MOST = 1 << 27 };

static struct pen_watched_hosts watched(struct pen_control_tcp *tcp) {
  return (struct pen_watched_hosts){&tcp->config, tcp->shared, &tcp->peers};
}

/* ---- messages ---- */

/* Results are for one rank: the server sends them to its command alone. */
static bool is_for(const struct pen_control_tcp *tcp, const struct pen_peer_command *peer,
                   const struct pen_control_message *message) {
  return message->kind != PEN_MESSAGE_RESULTS || !tcp->peers.serves ||
         pen_rank_set_has(&peer->ranks, tcp->shared->results.reader);
}

bool pen_control_is_aborted(const struct pen_control_tcp *tcp) {
  return atomic_load(&tcp->shared->control->abort_status) != 0;
}

bool pen_control_is_told(const struct pen_peer_command *peer) {
  return peer->link.socket >= 0 && !peer->arrives &&
         !(peer->finished && peer->link.unsent.count > UNSENT_WAIT);
}

/* To all peers except one (PEN_NONE: to all). */
static void broadcast(struct pen_control_tcp *tcp, const struct pen_control_message *message,
                      const void *bytes, uint32_t except) {
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    if (p != except && pen_control_is_told(peer) && is_for(tcp, peer, message)) {
      pen_control_link_post(&peer->link, message, bytes);
    }
  }
}

/* The ranks may change the bytes meanwhile: what is sent is what was signed. */
static void send_change(void *context, const struct pen_control_message *message,
                        const void *bytes) {
  struct pen_control_tcp *tcp = context;
  memcpy(tcp->buffer, bytes, message->bytes);
  broadcast(tcp, message, tcp->buffer, PEN_NONE);
}

static void send_changes(struct pen_control_tcp *tcp) {
  bool waits = false;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    const struct pen_peer_command *peer = &tcp->peers.command[p];
    waits = waits || (!peer->finished && peer->link.unsent.count > UNSENT_WAIT);
  }
  if (!waits) {
    pen_control_sync_changes(tcp->sync, send_change, tcp);
  }
}

/* Call in each pass. */
static void exchange_heartbeats(struct pen_control_tcp *tcp) {
  const struct pen_watched_hosts hosts = watched(tcp);
  const uint64_t before_ns = tcp->now_ns;
  tcp->now_ns = pen_now_ns();
  pen_lost_hosts_pass(&hosts, tcp->now_ns - before_ns);
  if (tcp->now_ns >= tcp->heartbeat_ns) {
    broadcast(tcp, &(struct pen_control_message){.kind = PEN_MESSAGE_HEARTBEAT}, NULL, PEN_NONE);
    tcp->heartbeat_ns = tcp->now_ns + HEARTBEAT_MS * 1000000ull;
  }
}

void pen_control_lose_link(struct pen_control_tcp *tcp, struct pen_peer_command *peer, int error) {
  const struct pen_watched_hosts hosts = watched(tcp);
  pen_lost_hosts_of_link(&hosts, peer, error);
}

void pen_control_send_state(struct pen_control_tcp *tcp, struct pen_peer_command *peer) {
  const struct pen_control_message message = {.kind = PEN_MESSAGE_START,
                                              .bytes = sizeof tcp->state};
  pen_control_link_post(&peer->link, &message, &tcp->state);
}

void pen_control_apply(struct pen_control_tcp *tcp, uint32_t index,
                       const struct pen_control_message *message) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  const void *bytes = peer->link.arriving.bytes;
  if (!pen_control_sync_fits(tcp->sync, message) || message->rank >= tcp->shared->process_count) {
    pen_control_lose_link(tcp, peer, EBADMSG);
  } else if (message->kind == PEN_MESSAGE_GOODBYE) {
    peer->finished = true;
    atomic_store(&tcp->shared->control->run_ended, 1);
  } else if (message->kind != PEN_MESSAGE_HEARTBEAT) {
    pen_lost_host_note(&tcp->config, message);
    pen_control_sync_apply(tcp->sync, message, bytes);
    broadcast(tcp, message, bytes, index);
  }
}

int pen_control_take(struct pen_control_tcp *tcp, struct pen_peer_command *peer,
                     struct pen_control_message *message) {
  const size_t before = peer->link.arriving.received;
  const int taken = pen_control_link_take(&peer->link, tcp->buffer_bytes, message);
  if (taken > 0 || peer->link.arriving.received > before) {
    peer->silent_ns = 0;
  }
  return taken;
}

/* A spare that has started late. */
static void let_in(struct pen_control_tcp *tcp, struct pen_peer_command *peer) {
  const int taken = pen_rendezvous_arrive(&tcp->config, peer);
  if (taken > 0) {
    peer->silent_ns = 0;
    pen_control_send_state(tcp, peer);
  } else if (taken < 0) {
    pen_control_lose_link(tcp, peer, errno);
  }
}

static void receive_message(struct pen_control_tcp *tcp, uint32_t index) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  struct pen_control_message message;
  if (peer->arrives) {
    let_in(tcp, peer);
    return;
  }
  const int taken = pen_control_take(tcp, peer, &message);
  if (taken > 0) {
    pen_control_apply(tcp, index, &message);
  } else if (taken < 0) {
    pen_control_lose_link(tcp, peer, errno);
  }
}

/* Sends what peers have not taken. One that arrives, and is lost, may come again. */
static void flush_links(struct pen_control_tcp *tcp) {
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    pen_control_link_flush(&peer->link);
    if (!peer->finished && peer->link.unsent.count > UNSENT_MOST) {
      pen_control_lose_link(tcp, peer, EAGAIN);
    }
    if (peer->finished && peer->arrives) {
      pen_rendezvous_forget(peer);
    }
  }
}

/* Waits up to timeout_us and receives what each peer has sent, up to a message. Returns how many
 * peers with a place have not sent GOODBYE. */
static uint32_t receive_all(struct pen_control_tcp *tcp, int timeout_us) {
  struct pollfd *polled = tcp->polled;
  uint32_t left = 0;
  exchange_heartbeats(tcp);
  flush_links(tcp);
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    const struct pen_peer_command *peer = &tcp->peers.command[p];
    const short sends = peer->link.unsent.count > 0 ? POLLOUT : 0;
    polled[p] = (struct pollfd){.fd = peer->finished ? -1 : peer->link.socket,
                                .events = (short)(POLLIN | sends)};
    left += !peer->finished && !peer->arrives;
  }
  const struct timespec wait = {.tv_nsec = 1000L * timeout_us};
  polled[tcp->peers.count] = (struct pollfd){.fd = tcp->shared->changed, .events = POLLIN};
  ppoll(polled, tcp->peers.count + 1u, &wait, NULL);
  uint64_t changes;
  while (read(tcp->shared->changed, &changes, sizeof changes) > 0) {
  }
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    if (polled[p].fd >= 0 && polled[p].revents != 0) {
      receive_message(tcp, p);
    }
  }
  return left;
}

static void send_goodbye(struct pen_control_tcp *tcp, bool to_spares) {
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    if (to_spares == (peer->ranks.count == 0) && pen_control_is_told(peer)) {
      pen_control_link_post(&peer->link, &(struct pen_control_message){.kind = PEN_MESSAGE_GOODBYE},
                            NULL);
    }
  }
}

/* With the living ones, so that they get their GOODBYE. */
static void await_closes(struct pen_control_tcp *tcp) {
  const uint64_t end_ns = pen_now_ns() + CLOSES_S * 1000000000ull;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    if (peer->link.socket >= 0 && !peer->arrives &&
        atomic_load(&tcp->config.membership->states[peer->host]) == PEN_HOST_LIVES) {
      pen_control_link_await_close(&peer->link, end_ns);
    }
  }
}

/* The server's GOODBYE is the last, so that all commands are told of all losses. A spare ends when
 * it has it. */
static void *control_thread(void *argument) {
  struct pen_control_tcp *tcp = argument;
  tcp->now_ns = pen_now_ns();
  while (atomic_load(&tcp->ending) == 0) {
    receive_all(tcp, PEN_CONTROL_POLL_US);
    send_changes(tcp);
    if (!pen_control_is_aborted(tcp)) { /* who comes now, comes after a loss */
      pen_rendezvous_poll(&tcp->config, &tcp->peers);
    }
  }
  send_changes(tcp);
  send_goodbye(tcp, true);
  if (!tcp->peers.serves) {
    send_goodbye(tcp, false);
  }
  const uint64_t end_ns = pen_now_ns() + GOODBYE_S * 1000000000ull;
  while (receive_all(tcp, PEN_CONTROL_POLL_US) > 0 && pen_now_ns() < end_ns) {
    send_changes(tcp);
  }
  if (tcp->peers.serves) {
    send_goodbye(tcp, false);
  }
  flush_links(tcp);
  if (tcp->peers.serves) {
    await_closes(tcp);
  }
  return NULL;
}

/* ---- connecting ---- */

struct pen_control_tcp *pen_control_tcp_open(const struct pen_control_config *config,
                                             double timeout_s) {
  if (pen_host_and_spare_count(config->plan) < 2) {
    return NULL;
  }
  struct pen_control_tcp *tcp = pen_allocate(1, sizeof *tcp, "the connection to other hosts");
  tcp->config = *config;
  pen_rendezvous(config, &tcp->peers, timeout_s);
  return tcp;
}

void pen_control_tcp_attach(struct pen_control_tcp *tcp, struct pen_shared *shared) {
  if (tcp == NULL) {
    return;
  }
  const struct pen_membership *membership = tcp->config.membership;
  tcp->shared = shared;
  memcpy(shared->address, tcp->peers.address, sizeof shared->address);
  pen_message_address(membership, shared->address);
  shared->local = pen_host_ranks(membership, membership->own, membership->only);
  tcp->sync = pen_control_sync_open(membership->current, shared, shared->local);
  tcp->buffer_bytes = sizeof(struct pen_start_offer) > sizeof tcp->state
                          ? sizeof(struct pen_start_offer)
                          : sizeof tcp->state;
  for (uint32_t kind = PEN_MESSAGE_START + 1; kind < PEN_MESSAGE_KINDS; kind++) {
    const size_t bytes = pen_control_sync_bytes(tcp->sync, kind);
    tcp->buffer_bytes = bytes > tcp->buffer_bytes ? bytes : tcp->buffer_bytes;
  }
  tcp->polled = calloc(tcp->peers.most + 1u, sizeof *tcp->polled);
  tcp->buffer = malloc(tcp->buffer_bytes);
  pen_check(tcp->polled != NULL && tcp->buffer != NULL,
            "no memory for the connection to other hosts");
}

void pen_control_tcp_lose(struct pen_control_tcp *tcp, uint32_t place) {
  const struct pen_membership *membership = tcp->config.membership;
  struct pen_peer_command lost = {.host = membership->places[place].host};
  lost.ranks = pen_host_ranks(membership, lost.host, PEN_NONE);
  const struct pen_watched_hosts hosts = watched(tcp);
  pen_lost_host_report(&hosts, &lost, PEN_LOSS_UNREACHED);
}

struct pen_control_server *pen_control_tcp_mirror(struct pen_control_tcp *tcp) {
  return &tcp->peers.mirror;
}

void pen_control_tcp_leave(struct pen_control_tcp *tcp) {
  if (tcp != NULL) {
    pen_peers_close(&tcp->peers);
  }
}

void pen_control_tcp_start(struct pen_control_tcp *tcp) {
  for (uint32_t p = 0; tcp != NULL && p < tcp->peers.count; p++) {
    pen_control_link_limit(&tcp->peers.command[p].link, 0);
  }
  pen_check(tcp == NULL || pen_thread_start(&tcp->thread, control_thread, tcp),
            "cannot start the thread that communicates with other hosts");
}

void pen_control_tcp_close(struct pen_control_tcp *tcp) {
  if (tcp != NULL) {
    atomic_store(&tcp->ending, 1);
    pen_shared_notify(tcp->shared);
    pthread_join(tcp->thread, NULL);
    pen_control_tcp_leave(tcp);
    pen_control_sync_close(tcp->sync);
    free(tcp->peers.command);
    free(tcp->offers);
    free(tcp->polled);
    free(tcp->buffer);
    free(tcp);
  }
}
