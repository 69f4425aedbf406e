/* control_tcp.c: one control memory on several hosts (see control_tcp.h). */
#define _GNU_SOURCE
#include "runtime/comm/control_tcp.h"

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
#include "runtime/comm/control_accept.h"
#include "runtime/comm/control_connect.h"
#include "runtime/comm/control_sync.h"
#include "runtime/comm/failure_report.h"
#include "runtime/comm/failure_text.h"
#include "runtime/comm/listen_address.h"

/* Changes that no rank waits for, such as which action a rank runs, are sent every POLL_US. */
enum { POLL_US = 10000, ACCEPT_MS = 50, GOODBYE_S = 5, RIGHT_PLAN_S = 5 };

/* The command on another host. */
struct peer_command {
  struct pen_control_link link;
  struct pen_rank_set ranks;
  bool finished; /* it has sent GOODBYE, its last message; it receives until all have sent theirs */
};

struct pen_control_tcp {
  struct pen_control_config config;
  struct pen_shared *shared;
  struct peer_command *peers; /* on the first host: all others; elsewhere: the first */
  uint32_t peer_count;
  struct pen_control_sync *sync;
  struct pollfd *polled; /* [peer_count + 1]: the last is the eventfd of the shared memory */
  void *buffer;          /* of a message's bytes */
  pthread_t thread;
  atomic_int ending;
};

/* ---- messages ---- */

/* To all peers except one (PEN_NONE: to all). The receiving side notices a broken connection. */
static void broadcast(struct pen_control_tcp *tcp, const struct pen_control_message *message,
                      const void *bytes, uint32_t except) {
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    if (p != except) {
      pen_control_link_send(&tcp->peers[p].link, message, bytes);
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

/* A connection that ended without a GOODBYE: the ranks of its host are lost. If the other side has
 * answered nothing for LOST_MS, the link may be cut, and the host alive. */
static void report_lost_host(struct pen_control_tcp *tcp, struct peer_command *peer, int error) {
  char line[PEN_FAILURE_LINE_BYTES], cause[PEN_HOST_BYTES + 32];
  const struct pen_rank_set *ranks = &peer->ranks;
  uint32_t lost = ranks->first, waiter = PEN_NONE;
  for (uint32_t r = lost; r < ranks->process_count; r = pen_rank_set_next(ranks, r + 1)) {
    atomic_store(&tcp->shared->ranks[r].waits_for, 0); /* a lost rank waits for no rank */
  }
  for (uint32_t r = lost; r < ranks->process_count && waiter == PEN_NONE;
       r = pen_rank_set_next(ranks, r + 1)) {
    waiter = pen_failure_waiter(tcp->config.plan, tcp->shared, r);
    lost = waiter == PEN_NONE ? lost : r;
  }
  peer->finished = true;
  const bool is_link = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  snprintf(cause, sizeof cause, "%shost %.*s lost", is_link ? "link to " : "", PEN_HOST_BYTES,
           tcp->config.plan->hosts[ranks->host]);
  pen_failure_line(line, sizeof line, tcp->config.plan, tcp->shared, lost, cause, waiter);
  atomic_store(&tcp->shared->control->host_lost, 1);
  pen_failure_report(tcp->shared, peer->ranks.first, line);
  pen_shared_abort(tcp->shared, PEN_EXIT_LOST);
}

/* Receives one message of a peer and applies it; the first host forwards it to the other hosts. */
static void receive_message(struct pen_control_tcp *tcp, uint32_t index) {
  struct peer_command *peer = &tcp->peers[index];
  struct pen_control_message message;
  if (!pen_control_link_receive_header(&peer->link, &message) ||
      message.kind == PEN_MESSAGE_VERDICT ||
      message.bytes != pen_control_sync_bytes(tcp->sync, message.kind) ||
      message.rank >= tcp->shared->process_count ||
      !pen_control_link_receive(&peer->link, &message, tcp->buffer)) {
    report_lost_host(tcp, peer, errno);
  } else if (message.kind == PEN_MESSAGE_GOODBYE) {
    peer->finished = true;
  } else {
    pen_control_sync_apply(tcp->sync, &message, tcp->buffer);
    broadcast(tcp, &message, tcp->buffer, index);
  }
}

/* Waits up to timeout_us and receives a message of each peer that has one. Returns how many peers
 * have not sent GOODBYE. */
static uint32_t receive_all(struct pen_control_tcp *tcp, int timeout_us) {
  struct pollfd *polled = tcp->polled;
  uint32_t left = 0;
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    polled[p] = (struct pollfd){.fd = tcp->peers[p].finished ? -1 : tcp->peers[p].link.socket,
                                .events = POLLIN};
    left += !tcp->peers[p].finished;
  }
  const struct timespec wait = {.tv_nsec = 1000L * timeout_us};
  polled[tcp->peer_count] = (struct pollfd){.fd = tcp->shared->changed, .events = POLLIN};
  ppoll(polled, tcp->peer_count + 1u, &wait, NULL);
  uint64_t changes;
  while (read(tcp->shared->changed, &changes, sizeof changes) > 0) {
  }
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    if (polled[p].fd >= 0 && polled[p].revents != 0) {
      receive_message(tcp, p);
    }
  }
  return left;
}

static void *control_thread(void *argument) {
  struct pen_control_tcp *tcp = argument;
  while (atomic_load(&tcp->ending) == 0) {
    receive_all(tcp, POLL_US);
    send_changes(tcp);
  }
  send_changes(tcp);
  broadcast(tcp, &(struct pen_control_message){.kind = PEN_MESSAGE_GOODBYE}, NULL, PEN_NONE);
  const uint64_t end_ns = pen_now_ns() + GOODBYE_S * 1000000000ull;
  while (receive_all(tcp, POLL_US) > 0 && pen_now_ns() < end_ns) {
    send_changes(tcp);
  }
  return NULL;
}

/* ---- connecting ---- */

static bool overlap(const struct pen_rank_set *a, const struct pen_rank_set *b) {
  return pen_rank_set_has(a, b->first) || pen_rank_set_has(b, a->first);
}

/* Whether another command has started one of the ranks. */
static bool is_started_twice(const struct pen_control_tcp *tcp, const struct pen_rank_set *ranks) {
  bool twice = overlap(&tcp->config.local, ranks);
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    twice = twice || overlap(&tcp->peers[p].ranks, ranks);
  }
  return twice;
}

/* What a command that has proved itself is answered: 0, or why it must exit. */
static uint32_t judge_command(const struct pen_control_tcp *tcp, const struct pen_hello *hello) {
  if (memcmp(hello->digest, tcp->config.plan->digest, sizeof hello->digest) != 0) {
    return PEN_EXIT_DIGEST;
  }
  const struct pen_rank_set ranks = pen_rank_set_of(tcp->config.plan, hello->host, hello->only);
  return is_started_twice(tcp, &ranks) ? PEN_EXIT_USAGE : 0;
}

static void add_peer(struct pen_control_tcp *tcp, const struct pen_control_link *link,
                     const struct pen_rank_set *ranks) {
  tcp->peers[tcp->peer_count++] = (struct peer_command){.link = *link, .ranks = *ranks};
}

/* On the first host: waits for all other commands. A command with another plan has RIGHT_PLAN_S to
 * be replaced by one with the right plan. */
static void accept_commands(struct pen_control_tcp *tcp, uint64_t end_ns) {
  struct pen_control_server server;
  uint32_t connected = tcp->config.local.count, other_plan = PEN_NONE;
  pen_control_server_open(&server, &tcp->config);
  memcpy(tcp->shared->address, server.address, sizeof tcp->shared->address);
  while (connected < tcp->shared->process_count) {
    struct pen_proved_command command;
    if (pen_now_ns() > end_ns && other_plan != PEN_NONE) {
      pen_fail(PEN_EXIT_DIGEST, "rank %u runs another plan than rank 0: their digests differ",
               other_plan);
    }
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST, "%u of %u ranks came to port %u of this host in time", connected,
               tcp->shared->process_count, pen_first_port(tcp->config.plan));
    }
    if (!pen_control_server_poll(&server, ACCEPT_MS, &command)) {
      continue;
    }
    const struct pen_rank_set ranks =
        pen_rank_set_of(tcp->config.plan, command.hello.host, command.hello.only);
    const uint32_t status = judge_command(tcp, &command.hello);
    pen_control_send_verdict(&command.link, status);
    if (status == PEN_EXIT_DIGEST) {
      const uint64_t soon_ns = pen_now_ns() + RIGHT_PLAN_S * 1000000000ull;
      end_ns = soon_ns < end_ns ? soon_ns : end_ns;
      other_plan = ranks.first;
      pen_control_refuse(&server, &command.link, "it runs another plan");
    } else if (status != 0) {
      pen_fail(PEN_EXIT_USAGE, "rank %u is started by two commands", ranks.first);
    } else {
      add_peer(tcp, &command.link, &ranks);
      connected += ranks.count;
    }
  }
  pen_control_server_close(&server);
}

/* Elsewhere: the others reach this host where it reaches the first one. */
static void connect_to_first_host(struct pen_control_tcp *tcp, uint64_t end_ns) {
  struct pen_control_link link;
  struct sockaddr_storage own = {0};
  socklen_t bytes = sizeof own;
  pen_control_connect(&tcp->config, end_ns, &link);
  pen_check(getsockname(link.socket, (struct sockaddr *)&own, &bytes) == 0,
            "cannot get the address of a socket");
  if (tcp->config.plan->interface[0] != '\0') {
    own = pen_listen_address(tcp->config.plan);
  }
  pen_address_text(&own, tcp->shared->address, sizeof tcp->shared->address);
  const struct pen_rank_set first =
      pen_rank_set_of(tcp->config.plan, pen_rank_host(tcp->config.plan, 0), PEN_NONE);
  add_peer(tcp, &link, &first);
}

struct pen_control_tcp *pen_control_tcp_open(const struct pen_control_config *config,
                                             struct pen_shared *shared, double timeout_s) {
  const uint64_t end_ns = pen_now_ns() + (uint64_t)(timeout_s * 1e9);
  if (config->local.count == shared->process_count) {
    return NULL;
  }
  struct pen_control_tcp *tcp = calloc(1, sizeof *tcp);
  pen_check(tcp != NULL, "no memory for the connection to other hosts");
  *tcp =
      (struct pen_control_tcp){.config = *config,
                               .shared = shared,
                               .sync = pen_control_sync_open(config->plan, shared, config->local)};
  size_t buffer_bytes = 0;
  for (uint32_t kind = 0; kind < PEN_MESSAGE_KINDS; kind++) {
    const size_t bytes = pen_control_sync_bytes(tcp->sync, kind);
    buffer_bytes = bytes > buffer_bytes ? bytes : buffer_bytes;
  }
  tcp->peers = calloc(shared->process_count, sizeof *tcp->peers);
  tcp->polled = calloc(shared->process_count + 1u, sizeof *tcp->polled);
  tcp->buffer = malloc(buffer_bytes);
  pen_check(tcp->peers != NULL && tcp->polled != NULL && tcp->buffer != NULL,
            "no memory for the connection to other hosts");
  (config->local.first == 0 ? accept_commands : connect_to_first_host)(tcp, end_ns);
  return tcp;
}

/* ---- before the ranks start ---- */

static void receive_state(struct peer_command *peer, struct pen_start_state *state) {
  struct pen_control_message message;
  if (!pen_control_link_receive_header(&peer->link, &message) ||
      message.kind != PEN_MESSAGE_START || message.bytes != sizeof *state ||
      !pen_control_link_receive(&peer->link, &message, state)) {
    pen_fail(PEN_EXIT_LOST, "the command at %s ended before the ranks were started",
             peer->link.address);
  }
}

static void send_state(struct pen_control_tcp *tcp, const struct pen_start_state *state) {
  broadcast(tcp, &(struct pen_control_message){.kind = PEN_MESSAGE_START, .bytes = sizeof *state},
            state, PEN_NONE);
}

void pen_control_tcp_agree(struct pen_control_tcp *tcp, struct pen_start_state *state) {
  if (tcp == NULL) {
    return;
  }
  if (tcp->config.local.first != 0) {
    send_state(tcp, state);
    receive_state(&tcp->peers[0], state);
    return;
  }
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    struct pen_start_state other;
    receive_state(&tcp->peers[p], &other);
    pen_start_state_merge(state, &other);
  }
  send_state(tcp, state);
}

void pen_control_tcp_leave(struct pen_control_tcp *tcp) {
  for (uint32_t p = 0; tcp != NULL && p < tcp->peer_count; p++) {
    close(tcp->peers[p].link.socket);
  }
}

void pen_control_tcp_start(struct pen_control_tcp *tcp) {
  pen_check(tcp == NULL || pthread_create(&tcp->thread, NULL, control_thread, tcp) == 0,
            "cannot start the thread that communicates with other hosts");
}

void pen_control_tcp_close(struct pen_control_tcp *tcp) {
  if (tcp != NULL) {
    atomic_store(&tcp->ending, 1);
    pen_shared_notify(tcp->shared);
    pthread_join(tcp->thread, NULL);
    pen_control_tcp_leave(tcp);
    pen_control_sync_close(tcp->sync);
    free(tcp->peers);
    free(tcp->polled);
    free(tcp->buffer);
    free(tcp);
  }
}
