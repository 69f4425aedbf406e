/* secret.c: reads the secret of a run (see secret.h). */
#include "runtime/control/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input_file.h"
#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"

enum { PIPE_S = 5 };

/* Reads until the end of the file, or until the buffer is full. A pipe has PIPE_S: signals are
 * blocked meanwhile. */
static size_t read_bytes(const char *path, int fd, uint8_t *bytes, size_t most) {
  const uint64_t end_ns = pen_now_ns() + PIPE_S * 1000000000ull;
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  size_t used = 0;
  ssize_t got = 1;
  while (used < most && got != 0) {
    const uint64_t now_ns = pen_now_ns();
    if (poll(&polled, 1, now_ns < end_ns ? (int)((end_ns - now_ns) / 1000000) : 0) == 0) {
      pen_fail(PEN_EXIT_NO_INPUT, "the secret, %s: a pipe that did not end within %d s", path,
               PIPE_S);
    }
    got = read(fd, bytes + used, most - used);
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      pen_fail(PEN_EXIT_NO_INPUT, "the secret, %s: %s", path, strerror(errno));
    }
    used += got > 0 ? (size_t)got : 0;
  }
  return used;
}

/* Ends the program if others may read or replace the secret: what ssh asks of a private key. */
static void check_access(const char *path, const struct stat *about) {
  if (about->st_uid != geteuid() && about->st_uid != 0) {
    pen_fail(PEN_EXIT_USAGE,
             "the secret, %s: its owner is user %u: it must be yours (user %u) or root's", path,
             (unsigned)about->st_uid, (unsigned)geteuid());
  }
  if ((about->st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0) {
    pen_fail(PEN_EXIT_USAGE, "the secret, %s: mode %03o: only its owner may %s it (chmod 600)",
             path, about->st_mode & 0777u,
             (about->st_mode & (S_IRGRP | S_IROTH)) != 0 ? "read" : "write");
  }
}

static struct pen_secret read_file(const char *path) {
  uint8_t bytes[PEN_SECRET_BYTES_MAX + 1];
  struct stat about;
  struct pen_input_error error;
  uint64_t file_bytes;
  const int fd = pen_input_open(path, PEN_INPUT_SECRET, &file_bytes, &error);
  if (fd < 0 || fstat(fd, &about) != 0) {
    pen_fail(fd < 0 ? error.status : PEN_EXIT_NO_INPUT, "the secret, %s: %s", path,
             fd < 0 ? error.text : strerror(errno));
  }
  check_access(path, &about);
  const size_t count = read_bytes(path, fd, bytes, sizeof bytes);
  close(fd);
  if (count < PEN_SECRET_BYTES_MIN || count > PEN_SECRET_BYTES_MAX) {
    pen_fail(PEN_EXIT_USAGE, "the secret, %s: %s than %d bytes", path,
             count < PEN_SECRET_BYTES_MIN ? "fewer" : "more",
             count < PEN_SECRET_BYTES_MIN ? PEN_SECRET_BYTES_MIN : PEN_SECRET_BYTES_MAX);
  }
  struct pen_secret secret;
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, count, bytes);
  sha256_digest(&hash, sizeof secret.key, secret.key);
  explicit_bzero(bytes, sizeof bytes);
  return secret;
}

struct pen_secret pen_secret_read(const struct pen_plan *plan, const struct pen_options *options) {
  const char *path = options->secret_file;
  if (plan->host_count < 2) {
    return (struct pen_secret){{0}};
  }
  if (options->no_secret) {
    if (path != NULL) {
      pen_fail(PEN_EXIT_USAGE, "--no-secret and --secret-file exclude each other");
    }
    pen_warn("--no-secret: any process that reaches the hosts of this run can take part in it");
    return (struct pen_secret){{0}};
  }
  if (path == NULL) {
    path = getenv("PENSTOCK_SECRET_FILE");
  }
  if (path == NULL || path[0] == '\0') {
    pen_fail(PEN_EXIT_USAGE,
             "the ranks are on several hosts: say --secret-file FILE or set PENSTOCK_SECRET_FILE, "
             "the same file of at least %d random bytes on each host, or say --no-secret",
             PEN_SECRET_BYTES_MIN);
  }
  return read_file(path);
}
