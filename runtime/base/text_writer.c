/* text_writer.c: text output through a buffer of fixed size, without an allocator. */
#include "runtime/base/text_writer.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/standard_error.h"
#include "runtime/base/check.h"
#include "runtime/base/output.h"

int pen_json_number(char *text, size_t bytes, double value) {
  return isfinite(value) ? snprintf(text, bytes, "%.17g", value) : snprintf(text, bytes, "null");
}

int pen_json_any_number(char *text, size_t bytes, int digits, double value) {
  return isfinite(value) ? snprintf(text, bytes, "%.*g", digits, value)
                         : snprintf(text, bytes, "\"%s\"",
                                    isnan(value) ? "nan"
                                    : value > 0  ? "inf"
                                                 : "-inf");
}

int pen_json_mean(char *text, size_t bytes, uint64_t count, double value) {
  return count == 0 ? snprintf(text, bytes, "null") : pen_json_number(text, bytes, value);
}

void pen_writer_open(struct pen_writer *text, int fd) {
  text->fd = fd;
  text->failed = 0;
  text->used = 0;
}

int pen_writer_flush(struct pen_writer *text) {
  if (text->fd == STDERR_FILENO) {
    pen_standard_error_show(text->buffer, text->used);
  } else if (!text->failed && pen_output_write(text->fd, text->buffer, text->used)) {
    text->failed = errno;
  }
  text->used = 0;
  errno = text->failed;
  return text->failed ? -1 : 0;
}

void pen_writer_text(struct pen_writer *text, const char *string) {
  for (size_t left = strlen(string); left;) {
    if (text->used == sizeof text->buffer) {
      pen_writer_flush(text);
    }
    size_t room = sizeof text->buffer - text->used, part = left < room ? left : room;
    memcpy(text->buffer + text->used, string, part);
    text->used += part;
    string += part;
    left -= part;
  }
}

void pen_writer_print(struct pen_writer *text, const char *format, ...) {
  char printed[PEN_WRITER_PRINT_BYTES];
  va_list list;
  va_start(list, format);
  const int bytes = vsnprintf(printed, sizeof printed, format, list);
  va_end(list);
  pen_assert(bytes >= 0 && bytes < PEN_WRITER_PRINT_BYTES);
  pen_writer_text(text, printed);
}

void pen_hex_text(char *text, const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  }
}

void pen_writer_json(struct pen_writer *text, const char *string) {
  pen_writer_text(text, "\"");
  for (; *string; string++) {
    unsigned char c = (unsigned char)*string;
    char shown[8];
    if (c < 32) {
      snprintf(shown, sizeof shown, "\\u%04x", c);
    } else {
      snprintf(shown, sizeof shown, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    pen_writer_text(text, shown);
  }
  pen_writer_text(text, "\"");
}
