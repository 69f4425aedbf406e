/* control_tcp.c: one control memory on several hosts (see control_tcp.h). */
#define _GNU_SOURCE
#include "runtime/comm/control_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/comm/control_sync.h"
#include "runtime/comm/failure_text.h"

/* Changes that no rank waits for, such as which action a rank runs, are sent every POLL_US. */
enum { POLL_US = 10000, LOST_MS = 2000, RETRY_US = 50000, GOODBYE_S = 5 };

/* The command on another host. */
struct peer_command {
  int socket;
  struct pen_local_ranks ranks;
  bool finished; /* it has sent GOODBYE, its last message; it receives until all have sent theirs */
};

struct pen_control_tcp {
  const struct pen_plan *plan;
  const struct pen_shared *shared;
  struct pen_local_ranks local;
  struct peer_command *peers; /* on the first host: all others; elsewhere: the first */
  uint32_t peer_count;
  struct pen_control_sync *sync;
  struct pollfd *polled; /* [peer_count + 1]: the last is the eventfd of the shared memory */
  void *buffer;          /* of a message's bytes */
  pthread_t thread;
  atomic_int ending;
};

static bool is_first_host(const struct pen_control_tcp *tcp) { return tcp->local.first == 0; }

/* ---- messages ---- */

static bool send_bytes(int socket, const void *from, size_t bytes) {
  const char *at = from;
  for (ssize_t sent; bytes > 0; at += sent, bytes -= (size_t)sent) {
    sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
  }
  return true;
}

static bool receive_bytes(int socket, void *to, size_t bytes) {
  return bytes == 0 || recv(socket, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* To all peers except one (PEN_NONE: to all). The receiving side notices a broken connection. */
static void broadcast(struct pen_control_tcp *tcp, const struct pen_control_message *message,
                      const void *bytes, uint32_t except) {
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    if (p != except && send_bytes(tcp->peers[p].socket, message, sizeof *message)) {
      send_bytes(tcp->peers[p].socket, bytes, message->bytes);
    }
  }
}

static void send_change(void *tcp, const struct pen_control_message *message, const void *bytes) {
  broadcast(tcp, message, bytes, PEN_NONE);
}

static void send_changes(struct pen_control_tcp *tcp) {
  pen_control_sync_changes(tcp->sync, send_change, tcp);
}

/* A connection that ended without a GOODBYE: the ranks of its host are lost. If the other side has
 * answered nothing for LOST_MS, the link may be cut, and the host alive. */
static void report_lost_host(struct pen_control_tcp *tcp, struct peer_command *peer, int error) {
  char line[PEN_FAILURE_LINE_BYTES], cause[PEN_HOST_BYTES + 32];
  uint32_t lost = peer->ranks.first, waiter = PEN_NONE;
  for (uint32_t i = 0; i < peer->ranks.count; i++) {
    atomic_store(&tcp->shared->ranks[lost + i].waits_for, 0); /* a lost rank waits for no rank */
  }
  for (uint32_t i = 0; i < peer->ranks.count && waiter == PEN_NONE; i++) {
    waiter = pen_failure_waiter(tcp->plan, tcp->shared, peer->ranks.first + i);
    lost += waiter == PEN_NONE ? 0 : i;
  }
  peer->finished = true;
  const bool is_link = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  snprintf(cause, sizeof cause, "%shost %.*s lost", is_link ? "link to " : "", PEN_HOST_BYTES,
           tcp->plan->hosts[peer->ranks.first / tcp->plan->ranks_per_host]);
  pen_failure_line(line, sizeof line, tcp->plan, tcp->shared, lost, cause, waiter);
  if (pen_shared_abort(tcp->shared, PEN_EXIT_LOST)) {
    fprintf(stderr, "%s\n", line);
  }
}

/* Receives one message of a peer and applies it; the first host forwards it to the other hosts. */
static void receive_message(struct pen_control_tcp *tcp, uint32_t index) {
  struct peer_command *peer = &tcp->peers[index];
  struct pen_control_message message;
  errno = 0;
  if (!receive_bytes(peer->socket, &message, sizeof message) || message.kind == PEN_MESSAGE_HELLO ||
      message.bytes != pen_control_sync_bytes(tcp->sync, message.kind) ||
      message.rank >= tcp->shared->process_count ||
      !receive_bytes(peer->socket, tcp->buffer, message.bytes)) {
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
    polled[p] =
        (struct pollfd){.fd = tcp->peers[p].finished ? -1 : tcp->peers[p].socket, .events = POLLIN};
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

/* Small messages are sent at once, and the connection fails if the other side answers nothing, also
 * where nothing is sent, for LOST_MS. */
static void set_options(int socket) {
  const int yes = 1, lost_ms = LOST_MS, probe_s = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof probe_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof probe_s);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof lost_ms);
}

static bool overlap(struct pen_local_ranks a, struct pen_local_ranks b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

/* Fails (64) where a rank is started by two commands. */
static void check_ranks_are_distinct(const struct pen_control_tcp *tcp,
                                     struct pen_local_ranks ranks) {
  bool twice = overlap(tcp->local, ranks);
  for (uint32_t p = 0; p < tcp->peer_count; p++) {
    twice = twice || overlap(tcp->peers[p].ranks, ranks);
  }
  if (twice) {
    pen_fail(PEN_EXIT_USAGE, "rank %u is started by two commands", ranks.first);
  }
}

/* On the first host: waits for the connections of all other commands at the plan's port. */
static void accept_commands(struct pen_control_tcp *tcp, uint64_t end_ns) {
  const int yes = 1, server = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in6 any = {.sin6_family = AF_INET6,
                                   .sin6_port = htons(pen_first_port(tcp->plan)),
                                   .sin6_addr = IN6ADDR_ANY_INIT};
  uint32_t connected = tcp->local.count;
  pen_check(server >= 0 && setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(server, (const struct sockaddr *)&any, sizeof any) == 0 &&
                listen(server, SOMAXCONN) == 0,
            "cannot listen at cluster.port %u for the other hosts", pen_first_port(tcp->plan));
  while (connected < tcp->shared->process_count) {
    struct pollfd polled = {.fd = server, .events = POLLIN};
    struct pen_control_message hello;
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST, "%u of %u ranks came to port %u of this host in time", connected,
               tcp->shared->process_count, pen_first_port(tcp->plan));
    }
    const int socket =
        poll(&polled, 1, RETRY_US / 1000) > 0 ? accept4(server, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (socket >= 0 && receive_bytes(socket, &hello, sizeof hello) &&
        hello.kind == PEN_MESSAGE_HELLO && hello.rank < tcp->shared->process_count &&
        hello.number <= tcp->shared->process_count - hello.rank) {
      set_options(socket);
      check_ranks_are_distinct(tcp, (struct pen_local_ranks){hello.rank, (uint32_t)hello.number});
      tcp->peers[tcp->peer_count++] =
          (struct peer_command){socket, {hello.rank, (uint32_t)hello.number}, false};
      connected += (uint32_t)hello.number;
    } else if (socket >= 0) {
      close(socket);
    }
  }
  close(server);
}

/* Returns a socket, or -1. */
static int connect_to(const char *host, const char *port) {
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
  struct addrinfo *found = NULL;
  int connected_socket = -1;
  if (getaddrinfo(host, port, &wanted, &found) != 0) {
    return -1;
  }
  for (const struct addrinfo *a = found; a != NULL && connected_socket < 0; a = a->ai_next) {
    connected_socket = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (connected_socket >= 0 && connect(connected_socket, a->ai_addr, a->ai_addrlen) != 0) {
      close(connected_socket);
      connected_socket = -1;
    }
  }
  freeaddrinfo(found);
  return connected_socket;
}

static void connect_to_first_host(struct pen_control_tcp *tcp, uint64_t end_ns) {
  char port[8];
  int socket = -1;
  snprintf(port, sizeof port, "%u", pen_first_port(tcp->plan));
  while ((socket = connect_to(pen_first_host(tcp->plan), port)) < 0) {
    if (pen_now_ns() > end_ns) {
      pen_fail(PEN_EXIT_LOST,
               "rank %u cannot reach the first host, %s, at port %s (cluster.hosts, cluster.port)",
               tcp->local.first, pen_first_host(tcp->plan), port);
    }
    usleep(RETRY_US);
  }
  const struct pen_control_message hello = {
      .kind = PEN_MESSAGE_HELLO, .rank = tcp->local.first, .number = tcp->local.count};
  set_options(socket);
  tcp->peers[tcp->peer_count++] =
      (struct peer_command){socket, {0, tcp->plan->ranks_per_host}, false};
  pen_check(send_bytes(socket, &hello, sizeof hello), "cannot write to the first host, %s",
            pen_first_host(tcp->plan));
}

struct pen_control_tcp *pen_control_tcp_open(const struct pen_plan *plan,
                                             const struct pen_shared *shared,
                                             struct pen_local_ranks local, double timeout_s) {
  const uint64_t end_ns = pen_now_ns() + (uint64_t)(timeout_s * 1e9);
  if (local.count == shared->process_count) {
    return NULL;
  }
  struct pen_control_tcp *tcp = calloc(1, sizeof *tcp);
  pen_check(tcp != NULL, "no memory for the connection to other hosts");
  *tcp = (struct pen_control_tcp){.plan = plan,
                                  .shared = shared,
                                  .local = local,
                                  .sync = pen_control_sync_open(plan, shared, local)};
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
  (is_first_host(tcp) ? accept_commands : connect_to_first_host)(tcp, end_ns);
  return tcp;
}

void pen_control_tcp_leave(struct pen_control_tcp *tcp) {
  for (uint32_t p = 0; tcp != NULL && p < tcp->peer_count; p++) {
    close(tcp->peers[p].socket);
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
