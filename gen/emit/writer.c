/* writer.c: writes text, numbers and string literals (internal.h). */
#include <string.h>

#include "gen/emit/internal.h"

enum { DIGITS_MAX = 20, STRING_LINE = 110 };

static void write_pending(struct pen_c_writer *writer) {
  fwrite(writer->text, 1, writer->used, writer->out);
  writer->used = 0;
}

void pen_write_bytes(struct pen_c_writer *writer, const char *text, size_t bytes) {
  if (writer->used + bytes > sizeof writer->text) write_pending(writer);
  writer->line_used += bytes;
  if (bytes > sizeof writer->text) {
    fwrite(text, 1, bytes, writer->out);
    return;
  }
  memcpy(writer->text + writer->used, text, bytes);
  writer->used += bytes;
}

void pen_write_text(struct pen_c_writer *writer, const char *text) {
  pen_write_bytes(writer, text, strlen(text));
}

void pen_write_name(struct pen_c_writer *writer, const struct pen_profile *profile,
                    const char *name) {
  pen_write_text(writer, writer->prefix);
  if (profile) pen_write_text(writer, profile->name);
  if (profile) pen_write_text(writer, "_");
  pen_write_text(writer, name);
}

void pen_write_number(struct pen_c_writer *writer, uint64_t number) {
  char digits[DIGITS_MAX];
  size_t at = DIGITS_MAX;
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  pen_write_bytes(writer, digits + at, DIGITS_MAX - at);
}

/* Two question marks could begin a trigraph (C17, 5.2.1.1); characters beyond ASCII could change
 * the direction in which the line is shown. */
static bool is_plain(unsigned char character) {
  return character >= 32 && character < 127 && character != '?' && character != '"' &&
         character != '\\';
}

static void write_escape(struct pen_c_writer *writer, unsigned char character) {
  char text[] = {'\\', (char)('0' + character / 64), (char)('0' + character / 8 % 8),
                 (char)('0' + character % 8)};
  if (character == '\n') {
    pen_write_text(writer, "\\n");
  } else if (character == '"' || character == '\\') {
    text[1] = (char)character;
    pen_write_bytes(writer, text, 2);
  } else {
    pen_write_bytes(writer, text, sizeof text);
  }
}

/* The plain characters at the start, at most as many as a line has room for. */
static size_t count_plain(const char *text, size_t column) {
  size_t count = 0;
  while (column + count <= STRING_LINE + 1 && is_plain((unsigned char)text[count])) count++;
  return count;
}

void pen_write_string(struct pen_c_writer *writer, const char *text) {
  size_t column = 0;
  pen_write_text(writer, "\"");
  while (*text) {
    const size_t plain = count_plain(text, column);
    pen_write_bytes(writer, text, plain);
    if (plain == 0) write_escape(writer, (unsigned char)*text);
    text += plain > 0 ? plain : 1;
    column += plain > 0 ? plain : 1;
    if (*text && (text[-1] == '\n' || column > STRING_LINE + 1)) {
      pen_write_text(writer, "\"\n    \"");
      column = 0;
    }
  }
  pen_write_text(writer, "\"");
}

void pen_write_line_end(struct pen_c_writer *writer) {
  pen_write_text(writer, "\n");
  write_pending(writer);
  writer->line_used = 0;
}
