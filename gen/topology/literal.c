/* literal.c: quoted strings of a topology file, and values as messages show them. */
#include <ctype.h>
#include <string.h>

#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/topology/literal.h"

/* The character that a backslash and this letter mean, or 0. */
static char escaped(char letter) {
  static const char letters[] = "nrtfvab\\\"", meanings[] = "\n\r\t\f\v\a\b\\\"";
  const char *found = letter ? strchr(letters, letter) : NULL;
  return found ? meanings[found - letters] : 0;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads an escape after its backslash; returns the byte after it. A backslash that begins no escape
 * is kept, as in libconfig. */
static const char *read_escape(const char *at, const char *end, char *out) {
  if (end - at >= 3 && (*at | 0x20) == 'x' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0) {
    *out = (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
    return at + 3;
  }
  *out = at < end ? escaped(*at) : 0;
  if (*out) return at + 1;
  *out = '\\';
  return at;
}

const char *pen_literal_string(const char *from, const char *end, const char **string) {
  const char *close = from;
  while (close < end && *close != '"' && *close != '\n')
    close += *close == '\\' && close + 1 < end && close[1] != '\n' ? 2 : 1;
  if (close >= end || *close != '"') return NULL;
  char *text = pen_new((size_t)(close - from) + 1, 1), *out = text;
  while (from < close) {
    if (*from == '\\') {
      from = read_escape(from + 1, close, out++);
    } else {
      *out++ = *from++;
    }
  }
  *string = text; /* \x00 ends it, as in libconfig */
  return close + 1;
}

const char *pen_literal_shown(const char *text, size_t bytes) {
  char *shown = pen_new(PEN_SHOWN_MAX + sizeof "...", 1);
  size_t out = 0;
  for (size_t i = 0; i < bytes;) {
    size_t length = pen_character_bytes(text + i, bytes - i);
    if (out + (length ? length : 1) > PEN_SHOWN_MAX) {
      memcpy(shown + out, "...", 3);
      break;
    }
    if (isspace((unsigned char)text[i])) {
      if (out == 0 || shown[out - 1] != ' ') shown[out++] = ' ';
    } else if (length == 0 || iscntrl((unsigned char)text[i])) {
      shown[out++] = '?';
    } else {
      memcpy(shown + out, text + i, length);
      out += length;
    }
    i += length ? length : 1;
  }
  return shown;
}
