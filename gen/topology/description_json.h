/* description_json.h: typed values of a description's JSON; each ends the generator (78) with the
 * file, the place, the value and what is allowed. A place is a path: "weights[2].shape". */
#ifndef PEN_DESCRIPTION_JSON_H
#define PEN_DESCRIPTION_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The object of a file; *bytes and *text: its content. 66: it cannot be read; 78: it is no JSON, or
 * an object has a key twice. The caller frees it. */
json_t *pen_description_load(const char *path);

_Noreturn void pen_description_fail_at(const char *path, const char *place, const json_t *value,
                                       const char *allowed);

/* Fails if the object has another key than these, which blanks separate. */
void pen_description_keys(const char *path, const char *place, const json_t *object,
                          const char *keys);
/* Whether the value is that text. */
bool pen_description_is(const json_t *value, const char *text);
const json_t *pen_description_list(const char *path, const char *place, const json_t *value);
const json_t *pen_description_object(const char *path, const char *place, const json_t *value);
uint64_t pen_description_count(const char *path, const char *place, const json_t *value,
                               uint64_t least, uint64_t most);
/* A name, which messages, plans and headers of checkpoints show: letters, digits and the bytes of
 * `more`. The text may be empty only if `may_be_empty`. */
const char *pen_description_name(const char *path, const char *place, const json_t *value,
                                 const char *more, bool may_be_empty);

#endif
