/* message.h: what is printed on a terminal. Texts from outside (names and keys of files, the user's
 * own arguments) may be of any length and hold any bytes: a message is one line of UTF-8, without
 * control characters, of bounded length. Nothing here calls an allocator. */
#ifndef PEN_BASE_MESSAGE_H
#define PEN_BASE_MESSAGE_H

#include <stdarg.h>
#include <stddef.h>

enum { PEN_MESSAGE_BYTES = 1500, PEN_SHOWN_BYTES = 160, PEN_SHOWN_MAX = 100 };

/* The bytes of the UTF-8 character at `text`, of which `bytes` are there; 0: it is none. */
size_t pen_character_bytes(const char *text, size_t bytes);

/* Copies at most `most` bytes of whole characters of a text of `bytes`, with '?' in place of
 * control characters, of C0 and of C1, and of what is not UTF-8; no 0 at the end. `to` may be
 * `text`. Returns the bytes written. */
size_t pen_copy_visible(char *to, const char *text, size_t bytes, size_t most);

/* Copies a text from outside for a message: at most PEN_SHOWN_MAX bytes, then "...", with '?' in
 * place of control characters and of what is not UTF-8. Returns `shown`. */
const char *pen_shown(char shown[PEN_SHOWN_BYTES], const char *text);

/* Makes a message one line: replaces its control characters and what is not UTF-8 by '?', cuts it
 * if it has more bytes than the line, and ends it with "\n". `used`: its bytes, as snprintf()
 * counts them. Returns the bytes of the line. */
size_t pen_message_end(char line[PEN_MESSAGE_BYTES], size_t used);

/* Prints `PREFIX` and a message as such a line to standard error. */
void pen_message_print(const char *prefix, const char *format, va_list list);
void pen_message_say(const char *prefix, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
