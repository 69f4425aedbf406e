/* control_connect.c: the end of a control connection that connects (see control_connect.h). */
#include "runtime/control/control_connect.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/control/waiting.h"

enum { RETRY_US = 10000 };

/* A socket on which no call takes longer than a handshake may; -1: the host is not reached. */
static int connect_to(const char *host, const char *port, char *address, size_t bytes) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  const struct timeval limit = {.tv_sec = PEN_HANDSHAKE_MS / 1000};
  struct addrinfo *found = NULL;
  int connected = -1;
  if (getaddrinfo(host, port, &hints, &found) != 0) {
    return -1;
  }
  for (const struct addrinfo *a = found; a != NULL && connected < 0; a = a->ai_next) {
    connected = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (connected >= 0) {
      setsockopt(connected, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      setsockopt(connected, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    if (connected >= 0 && connect(connected, a->ai_addr, a->ai_addrlen) != 0) {
      close(connected);
      connected = -1;
    }
    if (connected >= 0) {
      getnameinfo(a->ai_addr, a->ai_addrlen, address, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST);
    }
  }
  freeaddrinfo(found);
  return connected;
}

static uint32_t first_rank(const struct pen_control_config *config) {
  const struct pen_membership *membership = config->membership;
  return pen_host_ranks(membership, membership->own, membership->only).first;
}

/* Fails where the server, which is proved, cannot be that of this run. */
static void check_server(const struct pen_control_config *config, uint32_t server,
                         const struct pen_hello *hello) {
  const char *reason = pen_hello_check(hello, PEN_ROLE_ACCEPTS, config->plan);
  if (reason != NULL) {
    pen_fail(PEN_EXIT_USAGE, "the first host, %s, cannot be used: %s",
             pen_host_name(config->plan, server), reason);
  }
  if (memcmp(hello->digest, config->plan->digest, sizeof hello->digest) != 0) {
    pen_fail(PEN_EXIT_DIGEST, "rank %u runs another plan than rank 0: their digests differ",
             first_rank(config));
  }
}

/* The handshake, up to this command's proof. False: the connection ended. */
static bool exchange_proofs(const struct pen_control_config *config, uint32_t server,
                            struct pen_handshake *handshake, int socket) {
  struct pen_handshake_answer answer;
  uint8_t proof[PEN_PROOF_BYTES];
  const struct pen_hello *hello = &handshake->connects;
  if (send(socket, hello, sizeof *hello, MSG_NOSIGNAL) != (ssize_t)sizeof *hello ||
      recv(socket, &answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer) {
    return false;
  }
  handshake->accepts = answer.hello;
  if (!pen_handshake_verify(handshake, PEN_ROLE_ACCEPTS, answer.proof)) {
    pen_fail(PEN_EXIT_USAGE, "the first host, %s, does not know the secret of this command",
             pen_host_name(config->plan, server));
  }
  pen_handshake_prove(handshake, PEN_ROLE_CONNECTS, proof);
  return send(socket, proof, sizeof proof, MSG_NOSIGNAL) == (ssize_t)sizeof proof;
}

/* Waits for the server's verdict. False: the connection ended. */
static bool receive_verdict(const struct pen_control_config *config,
                            struct pen_control_link *link) {
  struct pen_control_message verdict;
  if (!pen_control_link_receive_header(link, &verdict) || verdict.kind != PEN_MESSAGE_VERDICT ||
      verdict.bytes != 0 || !pen_control_link_receive(link, &verdict, NULL)) {
    return false;
  }
  if (verdict.number == PEN_EXIT_USAGE) {
    pen_fail(PEN_EXIT_USAGE, "rank %u is started by two commands", first_rank(config));
  }
  if (verdict.number == PEN_EXIT_LOST) {
    pen_fail(PEN_EXIT_LOST, "the run has gone on without this host");
  }
  return verdict.number == 0;
}

static bool shake_hands(const struct pen_control_config *config, uint32_t server,
                        struct pen_control_link *link) {
  struct pen_handshake handshake = {
      .secret = config->secret,
      .connects = pen_hello_new(PEN_ROLE_CONNECTS, config->membership, config->attempt)};
  if (!exchange_proofs(config, server, &handshake, link->socket)) {
    return false;
  }
  link->sends = pen_handshake_frame_key(&handshake, PEN_ROLE_CONNECTS);
  link->receives = pen_handshake_frame_key(&handshake, PEN_ROLE_ACCEPTS);
  check_server(config, server, &handshake.accepts);
  return receive_verdict(config, link);
}

bool pen_control_connect(const struct pen_control_config *config, uint32_t host,
                         const char *address, uint16_t at_port, uint64_t end_ns,
                         struct pen_control_link *link) {
  char port[8];
  struct pen_waiting waiting = pen_waiting_begin();
  snprintf(port, sizeof port, "%u", at_port);
  for (;; usleep(RETRY_US)) {
    *link = (struct pen_control_link){0};
    link->socket = connect_to(address, port, link->address, sizeof link->address);
    if (link->socket >= 0 && shake_hands(config, host, link)) {
      pen_control_link_set_options(link);
      return true;
    }
    if (link->socket >= 0) {
      close(link->socket);
    }
    if (pen_now_ns() > end_ns) {
      return false;
    }
    if (pen_waiting_is_long(&waiting)) {
      pen_warn("host %s waits for host %s, which it does not reach at port %s",
               pen_host_name(config->plan, config->membership->own),
               pen_host_name(config->plan, host), port);
    }
  }
}
