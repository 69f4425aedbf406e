/* escape.c: text from outside within comments and XML (escape.h). */
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

void pen_write_xml(FILE *out, const char *text) {
  for (const char *at = pen_visible_text(text, strlen(text)); *at; at++) {
    switch (*at) {
      case '&': fputs("&amp;", out); break;
      case '<': fputs("&lt;", out); break;
      case '>': fputs("&gt;", out); break;
      default: fputc(*at, out);
    }
  }
}
