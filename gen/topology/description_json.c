/* description_json.c: typed values of a description's JSON (see description_json.h). */
#include "gen/topology/description_json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/input_file.h"
#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"

enum { NAME_BYTES_MAX = 400 };

json_t *pen_description_load(const char *path) {
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_JSON, &bytes, &refused);
  if (text == NULL)
    pen_stop(refused.status == PEN_EXIT_DATA ? PEN_EXIT_TOPOLOGY : refused.status, "%s: %s", path,
             refused.text);
  json_error_t error;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!root) pen_stop(PEN_EXIT_TOPOLOGY, "%s:%d: %s", path, error.line, error.text);
  return root;
}

void pen_description_fail_at(const char *path, const char *place, const json_t *value,
                             const char *allowed) {
  char shown[PEN_SHOWN_BYTES];
  if (!value) pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: missing; %s", path, place, allowed);
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
  pen_shown(shown, text ? text : "");
  free(text);
  pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s = %s: %s", path, place, shown, allowed);
}

static bool has_word(const char *words, const char *word) {
  const size_t bytes = strlen(word);
  for (const char *at = words; bytes && (at = strstr(at, word)); at += bytes)
    if ((at == words || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == 0)) return true;
  return false;
}

void pen_description_keys(const char *path, const char *place, const json_t *object,
                          const char *keys) {
  for (void *at = json_object_iter((json_t *)object); at;
       at = json_object_iter_next((json_t *)object, at)) {
    char shown[PEN_SHOWN_BYTES];
    const char *key = json_object_iter_key(at);
    if (has_word(keys, key)) continue;
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
