/* literal.h: quoted strings of a topology file; values as messages show them. */
#ifndef PEN_LITERAL_H
#define PEN_LITERAL_H

#include <stddef.h>

/* Reads a string, in libconfig's notation, from the byte after its opening quote. Returns the byte
 * after the closing quote, or null if there is none before `end` or the end of the line. Sets
 * `string`, the decoded text. */
const char *pen_literal_string(const char *from, const char *end, const char **string);

/* A value for a message: on one line, in UTF-8 without control characters, truncated if long. */
const char *pen_literal_shown(const char *text, size_t bytes);

#endif
