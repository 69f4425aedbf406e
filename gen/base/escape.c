/* escape.c: text from outside, visible and within comments (escape.h). */
#include "gen/base/escape.h"

#include <ctype.h>
#include <string.h>

#include "base/message.h"
#include "gen/base/arena.h"

char *pen_visible_text(const char *text, size_t bytes) {
  char *visible = pen_new(bytes + 1, 1);
  pen_copy_visible(visible, text, bytes, bytes);
  return visible;
}

/* Two question marks begin a trigraph; a backslash at the end of a line joins it with the next. */
static int is_mark(char before, char after) {
  return (before == '*' && after == '/') || (before == '/' && strchr("*/", after)) ||
         (before == '?' && after == '?');
}

const char *pen_comment_text(const char *text) {
  char *comment = pen_new(2 * strlen(text) + 2, 1), *out = comment;
  for (; *text; text++) {
    const char character = isprint((unsigned char)*text) ? *text : '?';
    if (out > comment && is_mark(out[-1], character)) *out++ = ' ';
    *out++ = character;
  }
  if (out > comment && strchr("\\*/?", out[-1])) *out++ = ' ';
  return comment;
}
