/* output.c: results wait for their reader (see output.h). */
#include "runtime/base/output.h"

#include <errno.h>
#include <poll.h>

#include "runtime/base/files.h"

static void (*on_wait)(bool begins);

void pen_output_on_wait(void (*wait)(bool begins)) { on_wait = wait; }

/* Waits until a write of PIPE_BUF bytes does not. */
static void await_room(int fd) {
  struct pollfd polled = {.fd = fd, .events = POLLOUT};
  if (poll(&polled, 1, 0) != 0) {
    return;
  }
  if (on_wait != NULL) {
    on_wait(true);
  }
  while (poll(&polled, 1, -1) < 0 && errno == EINTR) {
  }
  if (on_wait != NULL) {
    on_wait(false);
  }
}

int pen_output_write(int fd, const void *bytes, size_t count) {
  if (pen_file_is_regular(fd)) {
    return pen_file_write(fd, bytes, count);
  }
  int result = 0;
  for (const char *at = bytes; count > 0 && result == 0;) {
    const size_t part = count < PIPE_BUF ? count : PIPE_BUF;
    await_room(fd);
    result = pen_file_write(fd, at, part);
    at += part;
    count -= part;
  }
  return result;
}

bool pen_output_await_input(int fd, bool (*ends)(const void *context), const void *context) {
  enum { ASK_MS = 100 };
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  bool ended = ends(context);
  if (ended || poll(&polled, 1, 0) > 0) {
    return !ended;
  }
  if (on_wait != NULL) {
    on_wait(true);
  }
  while (!ended && poll(&polled, 1, ASK_MS) <= 0) {
    ended = ends(context);
  }
  if (on_wait != NULL) {
    on_wait(false);
  }
  return !ended;
}
