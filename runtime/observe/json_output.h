/* json_output.h: measured costs as a JSON file. */
#ifndef PEN_JSON_OUTPUT_H
#define PEN_JSON_OUTPUT_H

struct json_t;

/* Replaces the contents of the open file of an option ("--output") by the object, and closes it.
 * Fails (74). Allocates. */
void pen_json_output(int descriptor, const char *option, const char *path,
                     const struct json_t *object);

#endif
