/* settings.h: the table of settings (settings.def) as data, for the parser, the canonical text and
 * the man page. */
#ifndef PEN_SETTINGS_H
#define PEN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/plan/plan.h"

/* The least cost above 0, and the greatest. */
#define PEN_COST_LEAST 1e-30
#define PEN_COST_MOST 1e30

/* The most entries of a list of any strings: passes compare each with others. */
enum { PEN_STRINGS_MAX = 1000 };

enum pen_setting_type {
  PEN_INTEGER,
  PEN_REAL,
  PEN_BOOLEAN,
  PEN_STRING,
  PEN_CHOICE,
  PEN_INTEGERS,
  PEN_REALS,
  PEN_STRINGS,
  PEN_CHOICES,
};

/* ---- choices ---- */

/* An enum for each list of choices that is the generator's alone: pen_placement, ... */
#define PEN_ENUM(list) enum pen_##list {
#define PEN_ENUMERATOR(name, text) PEN_##name,
#define PEN_ENUM_END \
  }                  \
  ;
#include "gen/topology/settings.def"

/* A choice of memory.recompute that is resolved before there is a plan. */
enum { PEN_RECOMPUTE_AUTO = PEN_RECOMPUTE_KINDS };

/* A setting without a value, or with a list instead of a choice. */
enum { PEN_UNSET = -1 };

struct pen_enumerator {
  const char *text; /* null: the end of the list */
  int value;
};

/* The lists: pen_enum_placement, ... */
#define PEN_ENUM(list) extern const struct pen_enumerator pen_enum_##list[];
#define PEN_PLAN_ENUM(list) PEN_ENUM(list)
#define PEN_ENUMERATOR(name, text)
#define PEN_ENUM_END
#define PEN_PLAN_ENUMERATOR(name, text)
#define PEN_PLAN_ENUM_END
#include "gen/topology/settings.def"

/* Null: the list does not have the value, as PEN_UNSET. */
const char *pen_enum_text(const struct pen_enumerator *list, int value);

/* ---- settings ---- */

/* The minimum of a BOOLEAN whose default is no line of the canonical text. */
enum { PEN_DEFAULT_UNSAID = 1 };

struct pen_setting {
  const char *group, *name;
  enum pen_setting_type type;
  double minimum, maximum;   /* of a number; the limits of an integer are exact as a double */
  const char *default_value; /* as text, or null */
  const struct pen_enumerator *choices; /* or null */
  const char *help;
  size_t offset, has_offset; /* in struct pen_topology */
};

extern const struct pen_setting pen_settings[];
extern const size_t pen_setting_count;

/* The row of group.name, or null. `bytes`: the length of the group's name. */
const struct pen_setting *pen_setting_find(const char *group, size_t bytes, const char *name);
/* The row of "group.name", or null. */
const struct pen_setting *pen_setting_find_path(const char *path);
/* That, or the row whose former name it is: then *former_name is the path. */
const struct pen_setting *pen_setting_find_any(const char *path, const char **former_name);
bool pen_setting_is_group(const char *group);

/* A hint about an unknown path or group: `did you mean pipeline.ranks?` with the nearest by edit
 * distance, or the list of groups if none is near. The same name in another group is the nearest;
 * then, if the group exists, its settings, and the hint always names one of them. */
const char *pen_setting_hint(const char *path);
const char *pen_setting_hint_group(const char *group);

/* The names of a group's settings: `ranks, stages_per_rank, ...`. */
const char *pen_setting_names(const char *group);

/* Levenshtein's edit distance between two names. */
size_t pen_name_distance(const char *a, const char *b);

/* Whether the setting is a list that may also be written as one value for all elements. */
bool pen_setting_takes_one(const struct pen_setting *setting);

/* Whether a number is within the limits of a setting of numbers, and finite in f32, in which
 * kernels read it. */
bool pen_setting_has_number(const struct pen_setting *setting, double number);

/* The values that a setting allows, as text: `a whole number from 1 to 4096`, `"loop" or "v"`. */
const char *pen_setting_allowed(const struct pen_setting *setting);

#endif
