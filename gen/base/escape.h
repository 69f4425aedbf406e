/* escape.h: text from outside (names of files, settings, the command line) within what the
 * generator writes. There is one writer for each place: these, pen_write_string() for strings of C
 * (gen/emit/), pen_svg_text() for SVG (gen/views/), and jansson for JSON. */
#ifndef PEN_ESCAPE_H
#define PEN_ESCAPE_H

#include <stddef.h>

/* The text as one line of UTF-8: a control character, or a byte that is no UTF-8, is `?`. */
char *pen_visible_text(const char *text, size_t bytes);

/* The text within a comment of C, of Promela or of a topology: one line of ASCII, without the
 * beginning or the end of a comment or a trigraph; a space parts what would be one. */
const char *pen_comment_text(const char *text);

#endif
