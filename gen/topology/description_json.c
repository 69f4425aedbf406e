/* description_json.c: typed values of a description's JSON (see description_json.h). */
#include "gen/topology/description_json.h"

#include <ctype.h>
#include <string.h>

#include "base/input_file.h"
#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/json_file.h"

enum { NAME_BYTES_MAX = 400 };

json_t *pen_description_load(const char *path) {
  return pen_json_load(path, PEN_INPUT_JSON, PEN_EXIT_TOPOLOGY);
}

void pen_description_fail_at(const char *path, const char *place, const json_t *value,
                             const char *allowed) {
  pen_json_fail(PEN_EXIT_TOPOLOGY, path, place, value, allowed);
}

void pen_description_keys(const char *path, const char *place, const json_t *object,
                          const char *keys) {
  for (void *at = json_object_iter((json_t *)object); at;
       at = json_object_iter_next((json_t *)object, at)) {
    char shown[PEN_SHOWN_BYTES];
    const char *key = json_object_iter_key(at);
    if (pen_has_word(keys, key)) continue;
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s%s%s: there is no such key; the keys are %s", path, place,
             *place ? "." : "", pen_shown(shown, key), keys);
  }
}

bool pen_description_is(const json_t *value, const char *text) {
  return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

const json_t *pen_description_list(const char *path, const char *place, const json_t *value) {
  if (!json_is_array(value)) pen_description_fail_at(path, place, value, "a list");
  return value;
}

const json_t *pen_description_object(const char *path, const char *place, const json_t *value) {
  if (!json_is_object(value)) pen_description_fail_at(path, place, value, "an object");
  return value;
}

uint64_t pen_description_count(const char *path, const char *place, const json_t *value,
                               uint64_t least, uint64_t most) {
  const json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
  if (number < 0 || (uint64_t)number < least || (uint64_t)number > most)
    pen_description_fail_at(path, place, value,
                            pen_text("a whole number from %llu to %llu", (unsigned long long)least,
                                     (unsigned long long)most));
  return (uint64_t)number;
}

const char *pen_description_name(const char *path, const char *place, const json_t *value,
                                 const char *more, bool may_be_empty) {
  const char *text = json_string_value(value);
  bool allowed = text && strlen(text) <= NAME_BYTES_MAX && (*text || may_be_empty);
  for (const char *at = text; allowed && *at; at++)
    allowed = isalnum((unsigned char)*at) || strchr(more, *at);
  if (!allowed)
    pen_description_fail_at(
        path, place, value,
        pen_text("a name of at most %d letters, digits and %s", NAME_BYTES_MAX, more));
  return pen_text("%s", text);
}
