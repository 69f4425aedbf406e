/* control_accept.c: the first host's end of a handshake (see control_accept.h). */
#define _GNU_SOURCE
#include "runtime/control/control_accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/control/listen_address.h"

enum { REFUSAL_LINE_MS = 1000 };

/* The port of an address, which is of either version of IP. */
static in_port_t *port_of(struct sockaddr_storage *address) {
  return address->ss_family == AF_INET ? &((struct sockaddr_in *)address)->sin_port
                                       : &((struct sockaddr_in6 *)address)->sin6_port;
}

void pen_control_server_open(struct pen_control_server *server,
                             const struct pen_control_config *config, const char *address,
                             uint16_t port) {
  const int yes = 1;
  struct sockaddr_storage at = pen_address_of_text(address);
  socklen_t bytes = sizeof at;
  *server = (struct pen_control_server){.config = *config};
  snprintf(server->address, sizeof server->address, "%s", address);
  *port_of(&at) = htons(port);
  server->socket = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  pen_check(server->socket >= 0 &&
                setsockopt(server->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0,
            "cannot make a socket");
  const bool bound = bind(server->socket, (const struct sockaddr *)&at, sizeof at) == 0;
  if (!bound && errno == EADDRNOTAVAIL) {
    pen_fail(PEN_EXIT_USAGE,
             "cannot listen at %s, which is no address of this host: start host %s's command there "
             "(cluster.hosts, cluster.mapping), or change cluster.interface",
             address, config->plan->hosts[config->membership->own]);
  }
  pen_check(bound && listen(server->socket, SOMAXCONN) == 0 &&
                getsockname(server->socket, (struct sockaddr *)&at, &bytes) == 0,
            "cannot listen at %s, cluster.port %u, for the other hosts", address, port);
  server->port = ntohs(*port_of(&at));
}

/* ---- refusals ---- */

void pen_control_refuse(struct pen_control_server *server, struct pen_control_link *link,
                        const char *reason) {
  const uint64_t now_ns = pen_now_ns();
  pen_control_link_close(link);
  if (now_ns < server->refusal_line_ns) {
    server->refusals_hidden++;
    return;
  }
  char hidden[48] = "";
  if (server->refusals_hidden > 0) {
    snprintf(hidden, sizeof hidden, " (and %u more connections)", server->refusals_hidden);
  }
  pen_warn("refused a connection from %s: %s%s", link->address, reason, hidden);
  server->refusals_hidden = 0;
  server->refusal_line_ns = now_ns + REFUSAL_LINE_MS * 1000000ull;
}

/* Takes it from the list. */
static struct pen_open_handshake remove_handshake(struct pen_control_server *server, uint32_t i) {
  struct pen_open_handshake removed = server->open[i];
  server->open_count--;
  memmove(&server->open[i], &server->open[i + 1], (server->open_count - i) * sizeof *server->open);
  return removed;
}

static void refuse_open(struct pen_control_server *server, uint32_t i, const char *reason) {
  struct pen_open_handshake refused = remove_handshake(server, i);
  pen_control_refuse(server, &refused.link, reason);
}

/* ---- handshakes ---- */

static void accept_connection(struct pen_control_server *server) {
  struct sockaddr_storage from;
  socklen_t bytes = sizeof from;
  const int socket =
      accept4(server->socket, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    return;
  }
  if (server->open_count == PEN_HANDSHAKES_MAX) {
    refuse_open(server, 0, "a newer connection took its place before it had proved the secret");
  }
  struct pen_open_handshake *open = &server->open[server->open_count++];
  const struct pen_control_config *config = &server->config;
  *open = (struct pen_open_handshake){
      .link = {.socket = socket},
      .handshake = {.secret = config->secret,
                    .accepts =
                        pen_hello_new(PEN_ROLE_ACCEPTS, config->membership, config->attempt)},
      .end_ns = pen_now_ns() + PEN_HANDSHAKE_MS * 1000000ull};
  pen_address_text(&from, open->link.address, sizeof open->link.address);
}

/* Receives what has arrived of a message. 1: it is complete; 0: not yet; -1: the connection ended.
 */
static int receive_part(struct pen_open_handshake *open, void *message, size_t bytes) {
  const ssize_t got =
      recv(open->link.socket, (char *)message + open->received, bytes - open->received, 0);
  if (got <= 0) {
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }
  open->received += (size_t)got;
  return open->received == bytes;
}

/* Sends own hello and proof, which an empty socket takes whole. */
static bool answer(struct pen_open_handshake *open) {
  struct pen_handshake_answer answer = {.hello = open->handshake.accepts};
  pen_handshake_prove(&open->handshake, PEN_ROLE_ACCEPTS, answer.proof);
  open->answered = true;
  open->received = 0;
  return send(open->link.socket, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
}

/* Null, or why the handshake fails; *proved when it has succeeded. */
static const char *advance(struct pen_open_handshake *open, const struct pen_plan *plan,
                           bool *proved) {
  struct pen_hello *hello = &open->handshake.connects;
  const int part = open->answered ? receive_part(open, open->proof, sizeof open->proof)
                                  : receive_part(open, hello, sizeof *hello);
  if (part < 0) {
    return "it ended without a proof of the secret";
  }
  if (part > 0 && !open->answered) {
    return answer(open) ? NULL : "it cannot be answered";
  }
  if (part > 0 && !pen_handshake_verify(&open->handshake, PEN_ROLE_CONNECTS, open->proof)) {
    return "it does not know the secret of this run";
  }
  *proved = part > 0;
  return *proved ? pen_hello_check(hello, PEN_ROLE_CONNECTS, plan) : NULL;
}

static void open_link(struct pen_open_handshake *open, struct pen_proved_command *command) {
  command->link = open->link;
  command->link.sends = pen_handshake_frame_key(&open->handshake, PEN_ROLE_ACCEPTS);
  command->link.receives = pen_handshake_frame_key(&open->handshake, PEN_ROLE_CONNECTS);
  command->hello = open->handshake.connects;
  pen_control_link_set_options(&command->link);
}

bool pen_control_server_poll(struct pen_control_server *server, int timeout_ms,
                             struct pen_proved_command *command) {
  struct pollfd polled[PEN_HANDSHAKES_MAX + 1];
  const uint32_t count = server->open_count;
  for (uint32_t i = 0; i < count; i++) {
    polled[i] = (struct pollfd){.fd = server->open[i].link.socket, .events = POLLIN};
  }
  polled[count] = (struct pollfd){.fd = server->socket, .events = POLLIN};
  poll(polled, count + 1u, timeout_ms);
  const uint64_t now_ns = pen_now_ns();
  for (uint32_t i = count; i-- > 0;) {
    bool proved = false;
    const char *reason =
        polled[i].revents != 0 ? advance(&server->open[i], server->config.plan, &proved) : NULL;
    if (reason == NULL && !proved && now_ns > server->open[i].end_ns) {
      reason = "it has not proved the secret in time";
    }
    if (reason != NULL) {
      refuse_open(server, i, reason);
    } else if (proved) {
      struct pen_open_handshake open = remove_handshake(server, i);
      open_link(&open, command);
      return true;
    }
  }
  if (polled[count].revents != 0) {
    accept_connection(server);
  }
  return false;
}

void pen_control_server_close(struct pen_control_server *server) {
  for (uint32_t i = 0; i < server->open_count; i++) {
    close(server->open[i].link.socket);
  }
  close(server->socket);
}

void pen_control_send_verdict(struct pen_control_link *link, uint32_t status) {
  const struct pen_control_message verdict = {.kind = PEN_MESSAGE_VERDICT, .number = status};
  pen_control_link_post(link, &verdict, NULL);
}
