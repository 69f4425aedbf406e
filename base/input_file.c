/* input_file.c: opens regular files (see input_file.h). */
#define _GNU_SOURCE 1
#include "base/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

/* Whether the file may be a pipe, and whether its open and its reads wait for a writer. */
enum pipes { NO_PIPE, PIPE_WAITS, PIPE_DOES_NOT_WAIT };

static const struct {
  uint64_t most;
  const char *most_text;
  enum pipes pipes;
} kinds[] = {
    [PEN_INPUT_DATA] = {INT64_MAX, "8 EiB", NO_PIPE},
    [PEN_INPUT_JSON] = {UINT64_C(16) << 20, "16 MiB", NO_PIPE},
    [PEN_INPUT_TABLE] = {UINT64_C(64) << 20, "64 MiB", NO_PIPE},
    [PEN_INPUT_ACTIONS] = {UINT64_C(256) << 20, "256 MiB", NO_PIPE},
    [PEN_INPUT_PROMPTS] = {UINT64_C(1) << 30, "1 GiB", PIPE_WAITS},
    [PEN_INPUT_SECRET] = {UINT64_C(4) << 10, "4 KiB", PIPE_DOES_NOT_WAIT},
};

static int fail(struct pen_input_error *error, int status, const char *text) {
  *error = (struct pen_input_error){.status = status};
  snprintf(error->text, sizeof error->text, "%s", text);
  return -1;
}

static int fail_size(struct pen_input_error *error, enum pen_input_kind kind) {
  char text[40];
  snprintf(text, sizeof text, "more than %s", kinds[kind].most_text);
  return fail(error, EX_DATAERR, text);
}

/* Whether what is open may be read. */
static bool is_allowed(const struct stat *status, enum pen_input_kind kind) {
  return S_ISREG(status->st_mode) || (kinds[kind].pipes != NO_PIPE && S_ISFIFO(status->st_mode));
}

int pen_input_open(const char *path, enum pen_input_kind kind, uint64_t *bytes,
                   struct pen_input_error *error) {
  struct stat status;
  const char *const refusal =
      kinds[kind].pipes != NO_PIPE ? "not a regular file or a pipe" : "not a regular file";
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  /* Before it is opened, too: to open a device may do something. */
  if (stat(path, &status) != 0) return fail(error, EX_NOINPUT, strerror(errno));
  if (!is_allowed(&status, kind)) return fail(error, EX_NOINPUT, refusal);
  if (S_ISFIFO(status.st_mode) && kinds[kind].pipes == PIPE_WAITS) flags &= ~O_NONBLOCK;
  const int fd = open(path, flags);
  if (fd < 0) return fail(error, EX_NOINPUT, strerror(errno));
  const bool allowed = fstat(fd, &status) == 0 && is_allowed(&status, kind);
  *bytes = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
  if (allowed && *bytes <= kinds[kind].most) return fd;
  close(fd);
  return allowed ? fail_size(error, kind) : fail(error, EX_NOINPUT, refusal);
}

/* Reads up to the end into memory that grows, or to one byte more than the kind may have. */
static char *read_whole(int fd, enum pen_input_kind kind, size_t *bytes, int *cause) {
  size_t room = *bytes + 1;
  char *text = malloc(room);
  *bytes = 0;
  *cause = ENOMEM;
  while (text != NULL && *bytes <= kinds[kind].most) {
    const ssize_t got = read(fd, text + *bytes, room - *bytes);
    if (got <= 0 && !(got < 0 && errno == EINTR)) {
      *cause = got < 0 ? errno : 0;
      break;
    }
    *bytes += got > 0 ? (size_t)got : 0;
    if (*bytes == room) {
      char *larger = realloc(text, 2 * room);
      if (larger == NULL) free(text);
      text = larger;
      room *= 2;
    }
  }
  if (text != NULL && *bytes > kinds[kind].most) *cause = EFBIG;
  if (text != NULL && *bytes < room) text[*bytes] = '\0';
  return text;
}

char *pen_input_read(const char *path, enum pen_input_kind kind, size_t *bytes,
                     struct pen_input_error *error) {
  uint64_t expected;
  int cause;
  const int fd = pen_input_open(path, kind, &expected, error);
  if (fd < 0) return NULL;
  *bytes = (size_t)expected;
  char *text = read_whole(fd, kind, bytes, &cause);
  close(fd);
  if (cause == 0) return text;
  if (cause == EFBIG)
    fail_size(error, kind);
  else
    fail(error, cause == ENOMEM ? EX_OSERR : EX_NOINPUT, strerror(cause));
  free(text);
  return NULL;
}
