/* message.c: messages as a terminal may have them (see message.h). */
#include "base/message.h"

#include "base/standard_error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t pen_character_bytes(const char *text, size_t bytes) {
  unsigned char first = (unsigned char)*text;
  size_t length = first < 0x80                    ? 1
                  : first >= 0xc2 && first < 0xe0 ? 2
                  : (first & 0xf0) == 0xe0        ? 3
                  : first >= 0xf0 && first < 0xf5 ? 4
                                                  : 0;
  if (length == 0 || length > bytes) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  unsigned char second = length > 1 ? (unsigned char)text[1] : 0;
  bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  bool outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || outside ? 0 : length;
}

/* Whether a terminal acts on the character: those of C0 and C1, and DEL. */
static bool is_control(const char *text) {
  unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
  return first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0);
}

size_t pen_copy_visible(char *to, const char *text, size_t bytes, size_t most) {
  size_t out = 0;
  for (size_t i = 0; i < bytes;) {
    size_t length = pen_character_bytes(text + i, bytes - i);
    bool is_shown = length > 0 && !is_control(text + i);
    if (out + (is_shown ? length : 1) > most) break;
    if (is_shown) {
      memmove(to + out, text + i, length);
      out += length;
    } else {
      to[out++] = '?';
    }
    i += length > 0 ? length : 1;
  }
  return out;
}

const char *pen_shown(char shown[PEN_SHOWN_BYTES], const char *text) {
  const size_t bytes = strnlen(text, PEN_SHOWN_MAX + 4); /* a character beyond the cut may count */
  const size_t used = pen_copy_visible(shown, text, bytes, PEN_SHOWN_MAX);
  strcpy(shown + used, bytes > PEN_SHOWN_MAX ? "..." : "");
  return shown;
}

size_t pen_message_end(char line[PEN_MESSAGE_BYTES], size_t used) {
  enum { MOST = PEN_MESSAGE_BYTES - 5 }; /* "...\n" and the 0 that ends it */
  const bool is_cut = used > MOST;
  const size_t there = used < PEN_MESSAGE_BYTES - 1 ? used : PEN_MESSAGE_BYTES - 1;
  const size_t kept = pen_copy_visible(line, line, there, MOST);
  strcpy(line + kept, is_cut ? "...\n" : "\n");
  return kept + (is_cut ? 4 : 1);
}

void pen_message_print(const char *prefix, const char *format, va_list list) {
  char line[PEN_MESSAGE_BYTES];
  const size_t used = (size_t)snprintf(line, sizeof line, "%.*s", PEN_SHOWN_MAX, prefix);
  const int more = vsnprintf(line + used, sizeof line - used, format, list);
  const size_t bytes = pen_message_end(line, used + (size_t)(more < 0 ? 0 : more));
  pen_standard_error_write(line, bytes);
}

void pen_message_say(const char *prefix, const char *format, ...) {
  va_list list;
  va_start(list, format);
  pen_message_print(prefix, format, list);
  va_end(list);
}
