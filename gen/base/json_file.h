/* json_file.h: reads a JSON file, and refuses a value of one. */
#ifndef PEN_JSON_FILE_H
#define PEN_JSON_FILE_H

#include <jansson.h>

#include "base/input_file.h"

/* The value of a file, which the caller frees. Fails with 66 if it cannot be read, and with
 * `status` if it is too large or no JSON, or if an object has a key twice. */
json_t *pen_json_load(const char *path, enum pen_input_kind kind, int status);

/* Ends the generator with the file, the place within it, the value there (null: it is missing) and
 * what is allowed. */
_Noreturn void pen_json_fail(int status, const char *path, const char *place, const json_t *value,
                             const char *allowed);

#endif
