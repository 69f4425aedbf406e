/* value.h: converts values as written to fields of struct pen_topology, and fields to text. */
#ifndef PEN_VALUE_H
#define PEN_VALUE_H

#include "gen/topology/settings.h"
#include "gen/topology/source.h"
#include "gen/topology/topology.h"

/* One value, or a list of them. */
struct pen_written_value {
  bool is_list;
  size_t count;
  struct pen_literal *literal;
};

/* Sets the setting's field; false if the setting does not allow the value: wrong type, outside the
 * limits, or not one of the choices. */
bool pen_value_set(struct pen_topology *topology, const struct pen_setting *setting,
                   const struct pen_written_value *value);

/* Whether a number of the value is too large for its type: 64 bits, or f64. */
bool pen_value_is_too_large(const struct pen_setting *setting,
                            const struct pen_written_value *value);

/* Parses a value of the command line or a default of settings.def. A setting of strings needs no
 * quotes; lists are [a,b] or (a,b). */
struct pen_written_value pen_value_from_text(const struct pen_setting *setting, const char *text);

/* The setting's field as canonical text, the same however the value was written; null: it has no
 * value. */
const char *pen_value_text(const struct pen_topology *topology, const struct pen_setting *setting);

#endif
