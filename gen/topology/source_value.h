/* source_value.h: the values of a topology file, which libconfig has parsed. */
#ifndef PEN_SOURCE_VALUE_H
#define PEN_SOURCE_VALUE_H

#include <libconfig.h>
#include <stdbool.h>

#include "gen/topology/source.h"
#include "gen/topology/value.h"

/* False if it is not one value. */
bool pen_source_literal(const struct pen_source *source, const config_setting_t *from,
                        struct pen_literal *literal);

/* One value, or a list of them; false if it is or has a group, or a list in a list. */
bool pen_source_value(const struct pen_source *source, const config_setting_t *from,
                      struct pen_written_value *value);

/* Reads the list optimizer.groups, each of its groups as the text that means the same:
 *
 *   { endings = ["norm.weight", "bias"]; rate = 0.5; name = "sgd"; }
 *   norm.weight bias: rate=0.5 name=sgd
 *
 * `shown`: the list as a message has it. Fails (78) on a group that has no such text; false if it
 * is no list of values and groups. */
bool pen_source_optimizer_groups(const struct pen_source *source, const config_setting_t *from,
                                 struct pen_written_value *value, const char *shown);

#endif
