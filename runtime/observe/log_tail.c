/* log_tail.c: reads the end of a log (see log_tail.h). */
#define _GNU_SOURCE
#include "runtime/observe/log_tail.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"

static const size_t first_bytes = 1 << 16; /* of the end, read at first */

/* The number after `name` in a line that ends at `end`; 0: the line has none. */
static uint64_t number_after(const char *line, const char *end, const char *name) {
  const char *at = memmem(line, (size_t)(end - line), name, strlen(name));
  return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* Returns whether the line of `from_step` is among these bytes, which begin in a line unless
 * `whole`. */
static bool read_lines(struct pen_log_tail *tail, const char *bytes, size_t count, bool whole,
                       uint64_t from_step) {
  bool found = false;
  static const char evaluation[] = "\"eval_loss\":";
  const char *line = bytes, *end;
  *tail = (struct pen_log_tail){0};
  for (; (end = memchr(line, '\n', (size_t)(bytes + count - line))) != NULL; line = end + 1) {
    const uint64_t step = number_after(line, end, "{\"step\":"),
                   sample = number_after(line, end, "{\"event\":\"sample\",\"step\":");
    if (sample > 0 && (line != bytes || whole)) {
      tail->sample_step = sample;
    }
    if (step == 0 || (line == bytes && !whole)) {
      continue; /* of an event, or cut off */
    }
    if (memmem(line, (size_t)(end - line), evaluation, sizeof evaluation - 1) != NULL) {
      tail->evaluation_step = step;
      continue;
    }
    tail->step = step;
    if (step <= from_step) {
      tail->skipped = number_after(line, end, "\"skipped\":");
      found = found || step == from_step;
    }
  }
  return found;
}

/* Where the last line without a line end begins; `size` if there is none. */
static uint64_t past_last_line(int fd, uint64_t size) {
  char part[1 << 12];
  uint64_t end = size;
  while (end > 0) {
    const uint64_t from = end > sizeof part ? end - sizeof part : 0;
    const int64_t count = pen_file_read_at(fd, part, end - from, from);
    pen_check(count >= 0, "cannot read --log");
    const char *last = memrchr(part, '\n', (size_t)count);
    if (last != NULL) {
      return from + (uint64_t)(last - part) + 1;
    }
    end = from;
  }
  return 0;
}

/* Whether a line without an end is a log's: it begins as one, or with a block that was not written
 * before the host failed; or the file does. */
static bool may_be_line(int fd, uint64_t from) {
  static const char step[] = "{\"step\":", event[] = "{\"event\"";
  char first, start[sizeof step - 1] = "";
  return pen_file_read_at(fd, &first, 1, from) == 1 &&
         pen_file_read_at(fd, start, sizeof start, 0) >= 0 &&
         (first == '{' || first == '\0' || memcmp(start, step, sizeof start) == 0 ||
          memcmp(start, event, sizeof start) == 0);
}

static bool is_object(int fd, uint64_t from, uint64_t bytes) {
  char *text = malloc(bytes);
  const bool is_read = text != NULL && pen_file_read_at(fd, text, bytes, from) == (int64_t)bytes;
  json_t *line = is_read ? json_loadb(text, bytes, 0, NULL) : NULL;
  const bool is_object = json_is_object(line);
  json_decref(line);
  free(text);
  return is_object;
}

static void mend(int fd, const char *path, uint64_t size) {
  const uint64_t whole = past_last_line(fd, size);
  if (whole < size && is_object(fd, whole, size - whole)) {
    pen_check(pen_file_write_at(fd, "\n", 1, size) == 0, "cannot write to --log");
  } else if (whole < size && !may_be_line(fd, whole)) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--log %s: its last line, without an end, is none of a log",
             path);
  } else if (whole < size) {
    pen_check(ftruncate(fd, (off_t)whole) == 0, "cannot shorten --log");
    pen_warn("--log %s: its last line ended after %" PRIu64 " bytes: removed", path, size - whole);
  }
}

/* Opens a log; -1 unless it is a regular file that is not empty. */
static int open_log(const char *path, uint64_t *size) {
  struct stat status;
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)) {
    close(fd);
    return -1;
  }
  *size = fd < 0 ? 0 : (uint64_t)status.st_size;
  return fd;
}

void pen_log_tail_mend(const char *path) {
  uint64_t size;
  const int fd = open_log(path, &size);
  if (fd >= 0) {
    mend(fd, path, size);
    close(fd);
  }
}

struct pen_log_tail pen_log_tail_read(const char *path, uint64_t from_step) {
  struct pen_log_tail tail = {0};
  uint64_t size;
  pen_log_tail_mend(path);
  const int fd = open_log(path, &size);
  if (fd < 0) {
    return tail;
  }
  bool found = false;
  for (uint64_t most = first_bytes; !found; most *= 8) {
    const uint64_t from = size > most ? size - most : 0;
    char *bytes = malloc(size - from);
    pen_check(bytes != NULL, "no memory for the last lines of --log");
    const int64_t count = pen_file_read_at(fd, bytes, size - from, from);
    pen_check(count >= 0, "cannot read --log");
    found = read_lines(&tail, bytes, (size_t)count, from == 0, from_step) || from == 0;
    free(bytes);
  }
  close(fd);
  return tail;
}
