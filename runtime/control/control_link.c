/* control_link.c: frames of a control connection (see control_link.h). */
#include "runtime/control/control_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "runtime/base/futex_counter.h"

enum { LOST_MS = 2000 };

static bool send_all(int socket, struct iovec *part, size_t count) {
  while (count > 0) {
    const struct msghdr message = {.msg_iov = part, .msg_iovlen = count};
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      return false;
    }
    for (; count > 0 && (size_t)sent >= part->iov_len; part++, count--) {
      sent -= (ssize_t)part->iov_len;
    }
    if (count > 0) {
      part->iov_base = (char *)part->iov_base + sent;
      part->iov_len -= (size_t)sent;
    }
  }
  return true;
}

/* Each call waits for some bytes, not for all: a slow link is not a silent one. */
static bool receive_all(int socket, void *to, size_t bytes) {
  size_t got = 0;
  for (ssize_t now = 1; got < bytes && now > 0; got += now > 0 ? (size_t)now : 0) {
    now = recv(socket, (char *)to + got, bytes - got, 0);
  }
  return got == bytes;
}

bool pen_control_link_send(struct pen_control_link *link, const struct pen_control_message *message,
                           const void *bytes) {
  uint8_t proof[PEN_PROOF_BYTES];
  struct pen_control_message header = *message;
  pen_frame_sign(&link->sends, &header, sizeof header, bytes, header.bytes, proof);
  struct iovec part[] = {
      {&header, sizeof header}, {(void *)(uintptr_t)bytes, header.bytes}, {proof, sizeof proof}};
  return send_all(link->socket, part, sizeof part / sizeof *part);
}

bool pen_control_link_receive_header(struct pen_control_link *link,
                                     struct pen_control_message *message) {
  errno = 0;
  return receive_all(link->socket, message, sizeof *message);
}

bool pen_control_link_receive(struct pen_control_link *link,
                              const struct pen_control_message *message, void *bytes) {
  uint8_t proof[PEN_PROOF_BYTES];
  errno = 0;
  if (!receive_all(link->socket, bytes, message->bytes) ||
      !receive_all(link->socket, proof, sizeof proof)) {
    return false;
  }
  errno = EBADMSG;
  return pen_frame_verify(&link->receives, message, sizeof *message, bytes, message->bytes, proof);
}

bool pen_control_link_send_number(struct pen_control_link *link, uint32_t kind, uint64_t number) {
  return pen_control_link_send(link, &(struct pen_control_message){.kind = kind, .number = number},
                               NULL);
}

bool pen_control_link_receive_number(struct pen_control_link *link, uint32_t kind,
                                     uint64_t *number) {
  struct pen_control_message message;
  const bool received = pen_control_link_receive_header(link, &message) && message.kind == kind &&
                        message.bytes == 0 && pen_control_link_receive(link, &message, NULL);
  *number = received ? message.number : 0;
  return received;
}

void pen_control_link_limit(const struct pen_control_link *link, double seconds) {
  const struct timeval limit = {.tv_sec = (time_t)seconds};
  setsockopt(link->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(link->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void pen_control_link_set_options(const struct pen_control_link *link) {
  const int yes = 1, lost_ms = LOST_MS, probe_s = 1, socket = link->socket;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof probe_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof probe_s);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof lost_ms);
  /* Without exponential back-off a link that loses some packets is not taken for a lost one. */
  setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &yes, sizeof yes);
  pen_control_link_limit(link, 0);
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK);
}

void pen_control_link_await_close(const struct pen_control_link *link, uint64_t end_ns) {
  enum { POLL_MS = 10 };
  struct pollfd polled = {.fd = link->socket, .events = POLLIN};
  char unused[4096];
  shutdown(link->socket, SHUT_WR);
  for (ssize_t got = 1; got > 0 && pen_now_ns() < end_ns;) {
    if (poll(&polled, 1, POLL_MS) == 1) {
      got = recv(link->socket, unused, sizeof unused, MSG_DONTWAIT);
    }
  }
}
