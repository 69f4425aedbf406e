/* check.c: the three ways to stop, see check.h. */
#include "runtime/base/check.h"

#include "base/message.h"
#include "base/standard_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct pen_speaker speaker = {.rank = -1};

void pen_check_speaker(const struct pen_speaker *new_speaker) { speaker = *new_speaker; }

static char *written_to; /* [PEN_MESSAGE_BYTES + 1] */

void pen_check_write_to(char *message) { written_to = message; }

/* One write, so that lines of ranks that fail together do not mix. */
static void put_line(char line[PEN_MESSAGE_BYTES], size_t used, bool ends) {
  const size_t bytes = pen_message_end(line, used);
  if (written_to != NULL) {
    memcpy(written_to, line, bytes);
    written_to[bytes] = '\0';
  }
  if (written_to == NULL || !ends) {
    pen_standard_error_write(line, bytes);
  }
}

static bool may_speak(int status) { return speaker.claim == NULL || speaker.claim(status); }

/* A rank is a fork: it must not flush what its parent had buffered. */
static _Noreturn void leave(int status) {
  if (speaker.rank >= 0) {
    _exit(status);
  }
  exit(status);
}

/* The name and the message. */
static void put_message(const char *name, const char *format, va_list arguments, bool ends) {
  char line[PEN_MESSAGE_BYTES];
  size_t used = (size_t)snprintf(line, sizeof line, "%.*s: ", PEN_SHOWN_MAX, name);
  int more = vsnprintf(line + used, sizeof line - used, format, arguments);
  put_line(line, used + (size_t)(more < 0 ? 0 : more), ends);
}

void pen_warn(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  put_message("penstock", format, arguments, false);
  va_end(arguments);
}

void pen_say(const char *name, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  put_message(name, format, arguments, false);
  va_end(arguments);
}

void pen_say_line(const char *line) {
  char whole[PEN_MESSAGE_BYTES];
  put_line(whole, (size_t)snprintf(whole, sizeof whole, "%s", line), true);
}

void pen_end_progress_line(void) {
  if (isatty(STDERR_FILENO)) {
    pen_standard_error_write("\n", 1);
  }
}

void pen_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (may_speak(status)) {
    put_message("penstock", format, arguments, true);
  }
  va_end(arguments);
  leave(status);
}

/* "host H, rank R, at 3F1, file:line: " */
static size_t put_place(char *line, size_t bytes, const char *file, int line_number) {
  char host[256] = "?", action[64] = "";
  gethostname(host, sizeof host - 1);
  if (speaker.describe != NULL) {
    speaker.describe(action, sizeof action);
  }
  size_t used = (size_t)snprintf(line, bytes, "penstock: host %s", host);
  if (speaker.rank >= 0) {
    used += (size_t)snprintf(line + used, bytes - used, ", rank %d", speaker.rank);
  }
  if (action[0] != '\0') {
    used += (size_t)snprintf(line + used, bytes - used, ", at %s", action);
  }
  return used + (size_t)snprintf(line + used, bytes - used, ", %s:%d: ", file, line_number);
}

void pen_check_failed(const char *file, int line_number, const char *format, ...) {
  int cause = errno;
  char line[PEN_MESSAGE_BYTES];
  size_t used = put_place(line, sizeof line, file, line_number);
  va_list arguments;
  va_start(arguments, format);
  int more = vsnprintf(line + used, sizeof line - used, format, arguments);
  va_end(arguments);
  used += (size_t)(more < 0 ? 0 : more);
  if (cause != 0 && used < sizeof line) {
    used += (size_t)snprintf(line + used, sizeof line - used, ": %s", strerror(cause));
  }
  if (may_speak(PEN_EXIT_SYSTEM)) {
    put_line(line, used, true);
  }
  leave(PEN_EXIT_SYSTEM);
}

void pen_assert_failed(const char *file, int line_number, const char *condition) {
  char line[PEN_MESSAGE_BYTES];
  size_t used = put_place(line, sizeof line, file, line_number);
  used += (size_t)snprintf(line + used, sizeof line - used, "assertion failed: %s", condition);
  put_line(line, used, true);
  abort();
}
