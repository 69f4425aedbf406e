/* message.c: errors and warnings about settings. */
#include "gen/topology/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/value.h"

enum { REASON_BYTES_MAX = 1000 };

struct pen_origin *pen_topology_origin(const struct pen_topology *topology,
                                       const struct pen_setting *setting) {
  return (struct pen_origin *)&topology->origin[setting - pen_settings];
}

/* `FILE:LINE: GROUP.NAME = VALUE: `, or `FILE: GROUP.NAME = VALUE: ` for a default, or `FILE:
 * GROUP.NAME: ` without a value. */
static const char *message_prefix(const struct pen_topology *topology,
                                  const struct pen_setting *setting) {
  const struct pen_origin *origin = pen_topology_origin(topology, setting);
  const char *where = origin->where ? origin->where : pen_text("%s: ", topology->path);
  const char *text = origin->where ? origin->text : pen_value_text(topology, setting);
  return pen_text("%s%s.%s%s%s%s: ", where, setting->group, setting->name, text ? " = " : "",
                  text ? text : "",
                  topology->fallback ? pen_text(", in fallback %u", topology->fallback) : "");
}

void pen_topology_fail(const struct pen_topology *topology, const char *path, const char *format,
                       ...) {
  char reason[REASON_BYTES_MAX];
  va_list list;
  va_start(list, format);
  vsnprintf(reason, sizeof reason, format, list);
  va_end(list);
  const struct pen_setting *setting = pen_setting_find_path(path);
  pen_stop(PEN_EXIT_TOPOLOGY, "%s%s",
           setting ? message_prefix(topology, setting) : pen_text("%s: %s: ", topology->path, path),
           reason);
}

/* Prints a line about a setting to standard error; `word`: what kind of line. */
static void print_about(const struct pen_topology *topology, const char *path, const char *word,
                        const char *format, va_list list) {
  char reason[REASON_BYTES_MAX];
  if (pen_is_attempting()) return;
  vsnprintf(reason, sizeof reason, format, list);
  pen_tell("%s%s: %s", message_prefix(topology, pen_setting_find_path(path)), word, reason);
}

void pen_topology_warn(const struct pen_topology *topology, const char *path, const char *format,
                       ...) {
  va_list list;
  va_start(list, format);
  print_about(topology, path, "warning", format, list);
  va_end(list);
}

void pen_topology_hint(const struct pen_topology *topology, const char *path, const char *format,
                       ...) {
  va_list list;
  va_start(list, format);
  print_about(topology, path, "hint", format, list);
  va_end(list);
}
