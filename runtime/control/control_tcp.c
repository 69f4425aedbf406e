/* control_tcp.c: one control memory on several hosts (see control_tcp.h). */
#define _GNU_SOURCE
#include "runtime/control/control_tcp.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"
#include "runtime/control/control_sync.h"
#include "runtime/control/failure_report.h"
#include "runtime/control/listen_address.h"
#include "runtime/control/lost_hosts.h"
#include "runtime/control/redistribute.h"
#include "runtime/control/rendezvous.h"

/* Changes that no rank waits for, such as which action a rank runs, are sent every POLL_US. */
enum { POLL_US = 10000, GOODBYE_S = 5, CLOSES_S = 2 };

enum { HEARTBEAT_MS = 100 };

/* Before the ranks start there are none: the server is lost when it says nothing for so many times
 * as long. */
enum { SERVER_WAITS = 10 };

struct pen_control_tcp {
  struct pen_control_config config;
  struct pen_shared *shared;
  struct pen_peers peers;
  struct pen_control_sync *sync;
  struct pen_start_offer *offers; /* of the server, then of its peers, when they have agreed */
  struct pen_start_state state;   /* on this */
  struct pollfd *polled; /* [peers.count + 1]: the last is the eventfd of the shared memory */
  void *buffer;          /* of a message's bytes */
  pthread_t thread;
  uint64_t now_ns, heartbeat_ns; /* of the last pass; when to send the next */
  atomic_int ending;
};

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

/* To all peers except one (PEN_NONE: to all). The receiving side notices a broken connection. */
static void broadcast(struct pen_control_tcp *tcp, const struct pen_control_message *message,
                      const void *bytes, uint32_t except) {
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    if (p != except && is_for(tcp, &tcp->peers.command[p], message)) {
      pen_control_link_send(&tcp->peers.command[p].link, message, bytes);
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
  pen_control_sync_changes(tcp->sync, send_change, tcp);
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

static void lose_link(struct pen_control_tcp *tcp, struct pen_peer_command *peer, int error) {
  const struct pen_watched_hosts hosts = watched(tcp);
  pen_lost_hosts_of_link(&hosts, peer, error);
}

/* Receives the rest of a message of a peer and applies it; the first host forwards it to the other
 * hosts. */
static void take_message(struct pen_control_tcp *tcp, uint32_t index,
                         const struct pen_control_message *message) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  if (message->bytes != pen_control_sync_bytes(tcp->sync, message->kind) ||
      message->rank >= tcp->shared->process_count ||
      !pen_control_link_receive(&peer->link, message, tcp->buffer)) {
    lose_link(tcp, peer, errno);
    return;
  }
  peer->silent_ns = 0;
  if (message->kind == PEN_MESSAGE_HEARTBEAT) {
    return;
  }
  if (message->kind == PEN_MESSAGE_GOODBYE) {
    peer->finished = true;
    atomic_store(&tcp->shared->control->run_ended, 1);
  } else {
    pen_lost_host_note(&tcp->config, message);
    pen_control_sync_apply(tcp->sync, message, tcp->buffer);
    broadcast(tcp, message, tcp->buffer, index);
  }
}

static void receive_message(struct pen_control_tcp *tcp, uint32_t index) {
  struct pen_control_message message;
  if (pen_control_link_receive_header(&tcp->peers.command[index].link, &message)) {
    take_message(tcp, index, &message);
  } else {
    lose_link(tcp, &tcp->peers.command[index], errno);
  }
}

static void send_state(struct pen_control_tcp *tcp, struct pen_peer_command *peer) {
  const struct pen_control_message message = {.kind = PEN_MESSAGE_START,
                                              .bytes = sizeof tcp->state};
  pen_control_link_send(&peer->link, &message, &tcp->state);
}

/* Waits up to timeout_us and receives a message of each peer that has one. Returns how many peers
 * have not sent GOODBYE. */
static uint32_t receive_all(struct pen_control_tcp *tcp, int timeout_us) {
  struct pollfd *polled = tcp->polled;
  uint32_t left = 0;
  exchange_heartbeats(tcp);
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    const struct pen_peer_command *peer = &tcp->peers.command[p];
    polled[p] = (struct pollfd){.fd = peer->finished ? -1 : peer->link.socket, .events = POLLIN};
    left += !peer->finished;
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

/* A spare that has started late. */
static void let_spare_in(struct pen_control_tcp *tcp) {
  const uint32_t p = pen_rendezvous_poll(&tcp->config, &tcp->peers);
  if (p != PEN_NONE) {
    send_state(tcp, &tcp->peers.command[p]);
  }
}

static void send_goodbye(struct pen_control_tcp *tcp, bool to_spares) {
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    if (to_spares == (tcp->peers.command[p].ranks.count == 0)) {
      pen_control_link_send(&tcp->peers.command[p].link,
                            &(struct pen_control_message){.kind = PEN_MESSAGE_GOODBYE}, NULL);
    }
  }
}

/* With the living ones, so that they get their GOODBYE. */
static void await_closes(struct pen_control_tcp *tcp) {
  const uint64_t end_ns = pen_now_ns() + CLOSES_S * 1000000000ull;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    const struct pen_peer_command *peer = &tcp->peers.command[p];
    if (atomic_load(&tcp->config.membership->states[peer->host]) == PEN_HOST_LIVES) {
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
    receive_all(tcp, POLL_US);
    send_changes(tcp);
    let_spare_in(tcp);
  }
  send_changes(tcp);
  send_goodbye(tcp, true);
  if (!tcp->peers.serves) {
    send_goodbye(tcp, false);
  }
  const uint64_t end_ns = pen_now_ns() + GOODBYE_S * 1000000000ull;
  while (receive_all(tcp, POLL_US) > 0 && pen_now_ns() < end_ns) {
    send_changes(tcp);
  }
  if (tcp->peers.serves) {
    send_goodbye(tcp, false);
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
  struct pen_control_tcp *tcp = calloc(1, sizeof *tcp);
  pen_check(tcp != NULL, "no memory for the connection to other hosts");
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
  size_t buffer_bytes = 0;
  for (uint32_t kind = PEN_MESSAGE_START + 1; kind < PEN_MESSAGE_KINDS; kind++) {
    const size_t bytes = pen_control_sync_bytes(tcp->sync, kind);
    buffer_bytes = bytes > buffer_bytes ? bytes : buffer_bytes;
  }
  tcp->polled = calloc(tcp->peers.most + 1u, sizeof *tcp->polled);
  tcp->buffer = malloc(buffer_bytes);
  pen_check(tcp->polled != NULL && tcp->buffer != NULL,
            "no memory for the connection to other hosts");
}

/* ---- before the ranks start ---- */

/* Another attempt is made without the command, also if it has no ranks: it may have states. */
static void lose_before_start(struct pen_control_tcp *tcp, struct pen_peer_command *peer,
                              int error) {
  pen_failure_detected(tcp->shared);
  lose_link(tcp, peer, error);
  pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
}

static bool is_aborted(const struct pen_control_tcp *tcp) {
  return atomic_load(&tcp->shared->control->abort_status) != 0;
}

/* Takes messages of a server that has ended the attempt, from this one on, until they say so. */
static void take_until_abort(struct pen_control_tcp *tcp, uint32_t index,
                             const struct pen_control_message *first) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  take_message(tcp, index, first);
  while (!is_aborted(tcp) && !peer->finished) {
    receive_message(tcp, index);
  }
  pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
}

static bool receive_start(struct pen_control_tcp *tcp, uint32_t index, void *bytes, size_t count) {
  struct pen_peer_command *peer = &tcp->peers.command[index];
  struct pen_control_message message;
  if (tcp->peers.is_broken || !pen_control_link_receive_header(&peer->link, &message)) {
    lose_before_start(tcp, peer, tcp->peers.is_broken ? tcp->peers.error : errno);
    return false;
  }
  if (message.kind != PEN_MESSAGE_START) {
    take_until_abort(tcp, index, &message);
    return false;
  }
  if (message.bytes != count || !pen_control_link_receive(&peer->link, &message, bytes)) {
    lose_before_start(tcp, peer, errno);
    return false;
  }
  return true;
}

/* Of the commands with ranks, now or before; the others have nothing to offer. Also where one is
 * lost, all others have said theirs: the next that they say are their last words. */
static void decide_state(struct pen_control_tcp *tcp, const struct pen_start_offer *own) {
  const uint32_t count = tcp->peers.count + 1u;
  tcp->offers = calloc(count, sizeof *tcp->offers);
  pen_check(tcp->offers != NULL, "no memory for the connection to other hosts");
  tcp->offers[0] = *own;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    struct pen_peer_command *peer = &tcp->peers.command[p];
    tcp->offers[p + 1] = (struct pen_start_offer){.host = PEN_NONE, .hosts = own->hosts};
    if (peer->ranks.count > 0 || tcp->config.membership->held[peer->host]) {
      receive_start(tcp, p, &tcp->offers[p + 1], sizeof *tcp->offers);
    }
  }
  tcp->state = pen_start_state_of(tcp->offers, count);
}

/* How long each command may take for each of its messages. The server waits for all others, and
 * those for it. */
static void limit_waits(struct pen_control_tcp *tcp) {
  const double silence_s = tcp->config.silence_s;
  for (uint32_t p = 0; p < tcp->peers.count; p++) {
    pen_control_link_limit(&tcp->peers.command[p].link,
                           tcp->peers.serves ? silence_s : SERVER_WAITS * silence_s);
  }
}

/* A spare that waits has nothing to offer, but is told the state. */
bool pen_control_tcp_agree(struct pen_control_tcp *tcp, const struct pen_start_offer *offer,
                           struct pen_start_state *state) {
  if (tcp == NULL) {
    *state = pen_start_state_of(offer, 1);
    return true;
  }
  limit_waits(tcp);
  if (tcp->peers.serves) {
    decide_state(tcp, offer);
    for (uint32_t p = 0; p < tcp->peers.count && !is_aborted(tcp); p++) {
      send_state(tcp, &tcp->peers.command[p]);
    }
  } else {
    struct pen_peer_command *server = &tcp->peers.command[0];
    const struct pen_control_message message = {.kind = PEN_MESSAGE_START, .bytes = sizeof *offer};
    if (tcp->shared->local.count > 0 || offer->held != 0) {
      pen_control_link_send(&server->link, &message, offer);
    }
    receive_start(tcp, 0, &tcp->state, sizeof tcp->state);
  }
  *state = tcp->state;
  return !is_aborted(tcp);
}

bool pen_control_tcp_redistribute(struct pen_control_tcp *tcp,
                                  const struct pen_redistribution *states, bool takes_part) {
  struct pen_peer_command *lost = NULL;
  struct pen_control_message message;
  if (tcp->peers.serves) {
    lost = pen_redistribute_serve(states, &tcp->peers, tcp->offers);
  } else if (takes_part) {
    struct pen_peer_command *server = &tcp->peers.command[0];
    const enum pen_redistribute_end end = pen_redistribute_join(states, &server->link, &message);
    lost = end == PEN_REDISTRIBUTE_LOST ? server : NULL;
    if (end == PEN_REDISTRIBUTE_ENDED) {
      take_until_abort(tcp, 0, &message);
    }
  }
  if (lost != NULL) {
    lose_before_start(tcp, lost, errno);
  }
  return !is_aborted(tcp);
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
