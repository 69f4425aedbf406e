/* json_members.h: JSON objects, member by member. */
#ifndef PEN_JSON_MEMBERS_H
#define PEN_JSON_MEMBERS_H

#include <jansson.h>
#include <math.h>
#include <stdint.h>

struct pen_json_member {
  const char *key;
  json_t *value; /* which the object takes over; NULL: it has no such member */
};

/* An object with these members, in their order: PEN_JSON({"name", json_string(name)}, ...). */
#define PEN_JSON(...) pen_json_object((const struct pen_json_member[]){__VA_ARGS__, {0}})
/* Adds one to a list. */
#define PEN_JSON_APPEND(list, ...) json_array_append_new(list, PEN_JSON(__VA_ARGS__))
static inline json_t *pen_json_object(const struct pen_json_member *member) {
  json_t *object = json_object();
  for (; member->key; member++)
    if (member->value) json_object_set_new(object, member->key, member->value);
  return object;
}

/* JSON (RFC 8259) has neither NaN nor infinity: such a figure is null. */
static inline json_t *pen_json_real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}
static inline json_t *pen_json_integer(uint64_t value) { return json_integer((json_int_t)value); }

#endif
