/* settings.c: the table of settings, and texts about it for messages. */
#include "gen/topology/settings.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/topology.h"

#define PEN_ABOVE_0 DBL_TRUE_MIN
#define PEN_BELOW_1 (1.0 - DBL_EPSILON / 2)

#define PEN_ENUM(list) const struct pen_enumerator pen_enum_##list[] = {
#define PEN_ENUMERATOR(name, text) {text, PEN_##name},
#define PEN_ENUM_END  \
  { NULL, PEN_UNSET } \
  }                   \
  ;
#define PEN_PLAN_ENUM(list) PEN_ENUM(list)
#define PEN_PLAN_ENUMERATOR(name, text) PEN_ENUMERATOR(name, text)
#define PEN_PLAN_ENUM_END PEN_ENUM_END
#include "gen/topology/settings.def"
#define pen_enum_0 NULL

const struct pen_setting pen_settings[] = {
#define PEN_SETTING(group, name, type, minimum, maximum, default_value, choices, help) \
  {#group,                                                                             \
   #name,                                                                              \
   PEN_##type,                                                                         \
   minimum,                                                                            \
   maximum,                                                                            \
   default_value,                                                                      \
   pen_enum_##choices,                                                                 \
   help,                                                                               \
   offsetof(struct pen_topology, group##_##name),                                      \
   offsetof(struct pen_topology, has_##group##_##name)},
#include "gen/topology/settings.def"
};
static const struct {
  const char *old_path, *path;
} aliases[] = {
#define PEN_SETTING_ALIAS(old_path, group, name) {old_path, #group "." #name},
#include "gen/topology/settings.def"
};
const size_t pen_setting_count = sizeof pen_settings / sizeof *pen_settings;

const char *pen_enum_text(const struct pen_enumerator *list, int value) {
  while (list->text && list->value != value) list++;
  return list->text;
}

const struct pen_setting *pen_setting_find(const char *group, size_t bytes, const char *name) {
  for (size_t i = 0; i < pen_setting_count; i++) {
    const struct pen_setting *setting = &pen_settings[i];
    if (strlen(setting->group) == bytes && !memcmp(setting->group, group, bytes) &&
        !strcmp(setting->name, name))
      return setting;
  }
  return NULL;
}

const struct pen_setting *pen_setting_find_path(const char *path) {
  const char *dot = strchr(path, '.');
  return dot ? pen_setting_find(path, (size_t)(dot - path), dot + 1) : NULL;
}

const struct pen_setting *pen_setting_find_any(const char *path, const char **former_name) {
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(aliases[i].old_path, path)) {
      *former_name = path;
      return pen_setting_find_path(aliases[i].path);
    }
  return pen_setting_find_path(path);
}

bool pen_setting_is_group(const char *group) {
  for (size_t i = 0; i < pen_setting_count; i++) {
    if (!strcmp(pen_settings[i].group, group)) return true;
  }
  return false;
}

enum { NAME_BYTES_MAX = 64 }; /* longer names are compared by their first bytes */

/* Dynamic programming, one row of the table of distances at a time. */
size_t pen_name_distance(const char *a, const char *b) {
  size_t row[NAME_BYTES_MAX + 1], length = strnlen(b, NAME_BYTES_MAX);
  for (size_t j = 0; j <= length; j++) row[j] = j;
  for (size_t i = 0; i < NAME_BYTES_MAX && a[i]; i++) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < length; j++) {
      size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      size_t shorter = row[j] < row[j + 1] ? row[j] : row[j + 1];
      row[j + 1] = replaced < shorter + 1 ? replaced : shorter + 1;
    }
  }
  return row[length];
}

/* The distance of a setting from an unknown path: least for the right name in a wrong group, then
 * for a similar name in the same group, then for anything else. */
static size_t path_distance(const struct pen_setting *setting, const char *group,
                            const char *name) {
  size_t names = pen_name_distance(name, setting->name),
         groups = *group ? pen_name_distance(group, setting->group) : 0;
  size_t far = 4 * NAME_BYTES_MAX;
  if (names == 0) return groups;
  return far + 2 * names + (groups ? far + groups : 0);
}

/* A misspelt name differs in at most one letter of three. */
static bool is_near(const char *name, const char *known) {
  return pen_name_distance(name, known) <= strlen(name) / 3;
}

static const char *all_groups(void) {
  const char *text = "";
  for (size_t i = 0; i < pen_setting_count; i++) {
    const char *group = pen_settings[i].group;
    if (i == 0 || strcmp(group, pen_settings[i - 1].group))
      text = pen_text("%s%s%s", text, *text ? ", " : "", group);
  }
  return text;
}

const char *pen_setting_names(const char *group) {
  const char *text = "";
  for (size_t i = 0; i < pen_setting_count; i++) {
    if (!strcmp(pen_settings[i].group, group))
      text = pen_text("%s%s%s", text, *text ? ", " : "", pen_settings[i].name);
  }
  return text;
}

const char *pen_setting_hint(const char *path) {
  const char *dot = strchr(path, '.');
  const char *group = dot ? pen_text("%.*s", (int)(dot - path), path) : "",
             *name = dot ? dot + 1 : path;
  const struct pen_setting *nearest = NULL;
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < pen_setting_count; i++) {
    size_t found = path_distance(&pen_settings[i], group, name);
    if (found < least) {
      least = found;
      nearest = &pen_settings[i];
    }
  }
  if (!pen_setting_is_group(group) && !is_near(name, nearest->name))
    return pen_text("a setting is GROUP.NAME, and the groups are %s", all_groups());
  return pen_text("did you mean %s.%s?", nearest->group, nearest->name);
}

const char *pen_setting_hint_group(const char *group) {
  const char *nearest = "";
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < pen_setting_count; i++) {
    size_t found = pen_name_distance(group, pen_settings[i].group);
    if (found < least) {
      least = found;
      nearest = pen_settings[i].group;
    }
  }
  return is_near(group, nearest) ? pen_text("did you mean %s?", nearest)
                                 : pen_text("the groups are %s", all_groups());
}

bool pen_setting_takes_one(const struct pen_setting *setting) {
  return setting->type == PEN_REALS || setting->type == PEN_CHOICES ||
         (setting->type == PEN_INTEGERS && setting->choices);
}

static const char *quoted_list(const struct pen_enumerator *list) {
  const char *text = "";
  for (const struct pen_enumerator *e = list; e->text; e++)
    text = pen_text("%s%s\"%s\"", text, !*text ? "" : e[1].text ? ", " : " or ", e->text);
  return text;
}

static bool is_cost(const struct pen_setting *setting) {
  return setting->maximum == PEN_COST_MOST && setting->minimum == 0;
}

bool pen_setting_has_number(const struct pen_setting *setting, double number) {
  if (is_cost(setting) && number > 0 && number < PEN_COST_LEAST) return false;
  return fabs(number) <= FLT_MAX && number >= setting->minimum && number <= setting->maximum;
}

static const char *real_bounds(const struct pen_setting *setting) {
  if (setting->maximum == PEN_BELOW_1) return "a number from 0 to below 1";
  if (is_cost(setting))
    return pen_text("0, or a number from %g to %g", PEN_COST_LEAST, PEN_COST_MOST);
  if (isfinite(setting->maximum))
    return pen_text("a number from %g to %g", setting->minimum, setting->maximum);
  return setting->minimum == PEN_ABOVE_0
             ? "a finite number above 0"
             : pen_text("a finite number, %g or more", setting->minimum);
}

const char *pen_setting_allowed(const struct pen_setting *setting) {
  switch (setting->type) {
    case PEN_INTEGER:
      return pen_text("a whole number from %.0f to %.0f", setting->minimum, setting->maximum);
    case PEN_REAL: return real_bounds(setting);
    case PEN_BOOLEAN: return "true or false";
    case PEN_STRING: return "a string in quotes";
    case PEN_CHOICE: return quoted_list(setting->choices);
    case PEN_INTEGERS:
      return pen_text("%s%sa list of whole numbers from %.0f to %.0f",
                      setting->choices ? quoted_list(setting->choices) : "",
                      setting->choices ? ", or " : "", setting->minimum, setting->maximum);
    case PEN_REALS: return pen_text("%s, or a list of such", real_bounds(setting));
    case PEN_STRINGS: return pen_text("a list of strings in quotes, at most %d", PEN_STRINGS_MAX);
    case PEN_CHOICES: return pen_text("%s, or a list of such", quoted_list(setting->choices));
  }
  return "";
}
