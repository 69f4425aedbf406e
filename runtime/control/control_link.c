/* control_link.c: frames of a control connection (see control_link.h). */
#include "runtime/control/control_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"

enum { LOST_MS = 2000 };

/* ---- calls that do not wait ---- */

static void grow(unsigned char **bytes, size_t *room, size_t wanted) {
  if (wanted > *room) {
    *bytes = realloc(*bytes, wanted);
    *room = wanted;
    pen_check(*bytes != NULL, "no memory for a message of %zu bytes", wanted);
  }
}

/* The part of the next frame that is missing, of its header, its bytes or its proof; none: it is
 * whole. */
static struct iovec missing_part(struct pen_arriving_frame *frame) {
  size_t at = frame->received;
  if (at < sizeof frame->header) {
    return (struct iovec){(char *)&frame->header + at, sizeof frame->header - at};
  }
  at -= sizeof frame->header;
  if (at < frame->header.bytes) {
    return (struct iovec){frame->bytes + at, frame->header.bytes - at};
  }
  at -= frame->header.bytes;
  return (struct iovec){frame->proof + at, sizeof frame->proof - at};
}

/* Makes room for the bytes of a frame. False, with errno: there may not be so many. */
static bool accept_header(struct pen_arriving_frame *frame, size_t most) {
  if (frame->header.bytes > most) {
    errno = EBADMSG;
    return false;
  }
  grow(&frame->bytes, &frame->room, frame->header.bytes);
  return true;
}

int pen_control_link_take(struct pen_control_link *link, size_t most,
                          struct pen_control_message *message) {
  struct pen_arriving_frame *frame = &link->arriving;
  struct iovec part;
  while ((part = missing_part(frame)).iov_len > 0) {
    errno = 0;
    const ssize_t got = recv(link->socket, part.iov_base, part.iov_len, MSG_DONTWAIT);
    if (got <= 0) {
      return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    frame->received += (size_t)got;
    if (frame->received == sizeof frame->header && !accept_header(frame, most)) {
      return -1;
    }
  }
  frame->received = 0;
  *message = frame->header;
  errno = EBADMSG;
  return pen_frame_verify(&link->receives, message, sizeof *message, frame->bytes, message->bytes,
                          frame->proof)
             ? 1
             : -1;
}

bool pen_control_link_take_after(struct pen_control_link *link, size_t most,
                                 const struct pen_control_message *header) {
  link->arriving.header = *header;
  link->arriving.received = sizeof *header;
  return accept_header(&link->arriving, most);
}

static void keep_unsent(struct pen_unsent_frames *unsent, const void *bytes, size_t count) {
  grow(&unsent->bytes, &unsent->room, unsent->count + count);
  memcpy(unsent->bytes + unsent->count, bytes, count);
  unsent->count += count;
}

/* A message's frame in parts. */
enum { FRAME_PARTS = 3 };
struct frame {
  struct pen_control_message header;
  uint8_t proof[PEN_PROOF_BYTES];
  struct iovec part[FRAME_PARTS];
};

static void sign_frame(struct frame *frame, struct pen_control_link *link,
                       const struct pen_control_message *message, const void *bytes) {
  frame->header = *message;
  pen_frame_sign(&link->sends, message, sizeof *message, bytes, message->bytes, frame->proof);
  frame->part[0] = (struct iovec){&frame->header, sizeof frame->header};
  frame->part[1] = (struct iovec){(void *)(uintptr_t)bytes, message->bytes};
  frame->part[2] = (struct iovec){frame->proof, sizeof frame->proof};
}

void pen_control_link_post(struct pen_control_link *link, const struct pen_control_message *message,
                           const void *bytes) {
  struct frame frame;
  sign_frame(&frame, link, message, bytes);
  const struct msghdr whole = {.msg_iov = frame.part, .msg_iovlen = FRAME_PARTS};
  size_t sent = 0;
  if (link->unsent.count == 0) {
    const ssize_t done = sendmsg(link->socket, &whole, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0 && errno != EAGAIN && errno != EINTR) {
      return;
    }
    sent = done < 0 ? 0 : (size_t)done;
  }
  for (int i = 0; i < FRAME_PARTS; i++) {
    const size_t skipped = sent < frame.part[i].iov_len ? sent : frame.part[i].iov_len;
    if (skipped < frame.part[i].iov_len) {
      keep_unsent(&link->unsent, (char *)frame.part[i].iov_base + skipped,
                  frame.part[i].iov_len - skipped);
    }
    sent -= skipped;
  }
}

void pen_control_link_flush(struct pen_control_link *link) {
  struct pen_unsent_frames *unsent = &link->unsent;
  ssize_t sent = 0;
  while (unsent->count > 0 && sent >= 0) {
    sent = send(link->socket, unsent->bytes, unsent->count, MSG_DONTWAIT | MSG_NOSIGNAL);
    const bool is_broken = sent < 0 && errno != EAGAIN && errno != EINTR;
    const size_t done = is_broken ? unsent->count : sent < 0 ? 0 : (size_t)sent;
    unsent->count -= done;
    memmove(unsent->bytes, unsent->bytes + done, unsent->count);
  }
}

void pen_control_link_close(struct pen_control_link *link) {
  if (link->socket >= 0) {
    close(link->socket);
  }
  free(link->arriving.bytes);
  free(link->unsent.bytes);
  link->socket = -1;
  link->arriving = (struct pen_arriving_frame){.bytes = NULL};
  link->unsent = (struct pen_unsent_frames){.bytes = NULL};
}

/* ---- calls that wait ---- */

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
  struct frame frame;
  struct iovec before = {link->unsent.bytes, link->unsent.count};
  link->unsent.count = 0;
  sign_frame(&frame, link, message, bytes);
  return (before.iov_len == 0 || send_all(link->socket, &before, 1)) &&
         send_all(link->socket, frame.part, FRAME_PARTS);
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

void pen_control_link_await_close(struct pen_control_link *link, uint64_t end_ns) {
  enum { POLL_MS = 10 };
  struct pollfd polled = {.fd = link->socket, .events = POLLIN};
  char unused[4096];
  bool is_shut = false;
  for (ssize_t got = 1; got > 0 && pen_now_ns() < end_ns;) {
    pen_control_link_flush(link);
    if (!is_shut && link->unsent.count == 0) {
      is_shut = shutdown(link->socket, SHUT_WR) == 0;
    }
    if (poll(&polled, 1, POLL_MS) == 1) {
      got = recv(link->socket, unused, sizeof unused, MSG_DONTWAIT);
    }
  }
}
