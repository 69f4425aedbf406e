/* json_text.h: JSON as text for people and other programs: indented, in the order in which it was
 * read, with each number as the shortest text that reads back as it. */
#ifndef PEN_JSON_TEXT_H
#define PEN_JSON_TEXT_H

enum { PEN_NUMBER_BYTES = 40 };

/* The number with the fewest digits that read back as it, with a point or an exponent: "10000.0",
 * "1e-05". Returns `text`. */
const char *pen_shortest_text(char text[PEN_NUMBER_BYTES], double number);

struct json_t;

/* The text of a value, with a newline at the end; the caller frees it. Null: no memory. */
char *pen_json_text(const struct json_t *value);

#endif
