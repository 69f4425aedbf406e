/* log_tail.c: reads the end of a log (see log_tail.h). */
#define _GNU_SOURCE
#include "runtime/observe/log_tail.h"

#include <fcntl.h>
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
  const char *line = bytes, *end;
  *tail = (struct pen_log_tail){0};
  for (; (end = memchr(line, '\n', (size_t)(bytes + count - line))) != NULL; line = end + 1) {
    const uint64_t step = number_after(line, end, "{\"step\":");
    if (step == 0 || (line == bytes && !whole)) {
      continue; /* of an event, or cut off */
    }
    if (number_after(line, end, "\"eval_tokens\":") > 0) {
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

static void remove_incomplete_line(int fd, const char *bytes, size_t count, uint64_t size) {
  const char *last = memrchr(bytes, '\n', count);
  const size_t excess = last == NULL ? count : (size_t)(bytes + count - last - 1);
  if (excess > 0) {
    pen_check(ftruncate(fd, (off_t)(size - excess)) == 0, "cannot shorten --log");
  }
}

struct pen_log_tail pen_log_tail_read(const char *path, uint64_t from_step) {
  struct pen_log_tail tail = {0};
  struct stat status;
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const uint64_t size = (uint64_t)status.st_size;
    bool found = false;
    for (uint64_t most = first_bytes; !found; most *= 8) {
      const uint64_t from = size > most ? size - most : 0;
      char *bytes = malloc(size - from + 1);
      pen_check(bytes != NULL, "no memory for the last lines of --log");
      const int64_t count = pen_file_read_at(fd, bytes, size - from, from);
      pen_check(count >= 0, "cannot read --log");
      found = read_lines(&tail, bytes, (size_t)count, from == 0, from_step) || from == 0;
      if (found) {
        remove_incomplete_line(fd, bytes, (size_t)count, size);
      }
      free(bytes);
    }
  }
  if (fd >= 0) {
    close(fd);
  }
  return tail;
}
