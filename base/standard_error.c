/* standard_error.c: writes that do not wait for a reader (see standard_error.h). */
#define _GNU_SOURCE 1
#include "base/standard_error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 200 };

struct drop_counts {
  _Atomic unsigned long dropped; /* since a text was written */
  _Atomic bool is_full;          /* the text before was dropped */
};
static struct drop_counts own, *state = &own;

void pen_standard_error_share(void) {
  void *shared = state != &own ? MAP_FAILED
                               : mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  state = shared == MAP_FAILED ? state : shared;
}

/* The pipe or terminal that standard error is, opened again: O_NONBLOCK belongs to the open file,
 * which other processes share. -1: it cannot be, or need not. */
static int open_again(const struct stat *status) {
  const bool may_block = S_ISFIFO(status->st_mode) || isatty(STDERR_FILENO);
  struct stat found;
  int fd = may_block ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  if (fd >= 0 && (fstat(fd, &found) != 0 || found.st_ino != status->st_ino)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the descriptor takes something. False: time is out. */
static bool await_room(int fd, long end_ms) {
  struct pollfd polled = {.fd = fd, .events = POLLOUT};
  int ready;
  do {
    const long left_ms = end_ms - now_ms();
    ready = poll(&polled, 1, left_ms > 0 ? (int)left_ms : 0);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/* Standard error as it is written: `fd` does not block, unless it is a descriptor that cannot be
 * opened again. */
struct error_output {
  int fd;
  bool is_socket, blocks;
};

/* Returns whether the text was written, or failed otherwise than for its time. */
static bool write_until(const struct error_output *place, const char *text, size_t bytes,
                        long end_ms) {
  while (bytes > 0) {
    if (place->blocks && !await_room(place->fd, end_ms)) {
      return false;
    }
    const ssize_t done = place->is_socket
                             ? send(place->fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : write(place->fd, text, bytes);
    if (done < 0 && errno == EAGAIN && (!await_room(place->fd, end_ms) || now_ms() > end_ms)) {
      return false;
    }
    if (done < 0 && errno != EAGAIN && errno != EINTR) {
      return true;
    }
    text += done < 0 ? 0 : done;
    bytes -= done < 0 ? 0 : (size_t)done;
  }
  return true;
}

/* In one write with the number of those dropped before, if there are any. */
static bool write_counted(const struct error_output *place, const char *text, size_t bytes,
                          long end_ms) {
  char both[PIPE_BUF];
  const unsigned long before = atomic_exchange(&state->dropped, 0);
  const size_t line =
      (size_t)snprintf(both, sizeof both,
                       "penstock: %lu messages were dropped: nobody read standard error\n", before);
  const bool fits = before > 0 && bytes <= sizeof both - line;
  if (fits) {
    memcpy(both + line, text, bytes);
  }
  const bool written = fits ? write_until(place, both, line + bytes, end_ms)
                            : (before == 0 || write_until(place, both, line, end_ms)) &&
                                  write_until(place, text, bytes, end_ms);
  atomic_fetch_add(&state->dropped, written ? 0 : before + 1);
  return written;
}

static void write_within(const char *text, size_t bytes, int wait_ms) {
  const int error = errno;
  struct stat status = {.st_mode = 0};
  fstat(STDERR_FILENO, &status);
  const bool is_socket = S_ISSOCK(status.st_mode);
  const int again = is_socket ? -1 : open_again(&status);
  const struct error_output place = {.fd = again >= 0 ? again : STDERR_FILENO,
                                     .is_socket = is_socket,
                                     .blocks = again < 0 && !is_socket && !S_ISREG(status.st_mode)};
  const long end_ms = now_ms() + (atomic_load(&state->is_full) ? 0 : wait_ms);
  atomic_store(&state->is_full, !write_counted(&place, text, bytes, end_ms));
  if (again >= 0) {
    close(again);
  }
  errno = error;
}

void pen_standard_error_write(const char *text, size_t bytes) {
  write_within(text, bytes, WAIT_MS);
}

void pen_standard_error_show(const char *text, size_t bytes) { write_within(text, bytes, 0); }
