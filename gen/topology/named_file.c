/* named_file.c: files that settings name (see named_file.h). */
#include "gen/topology/named_file.h"

#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/message.h"
#include "gen/topology/settings.h"
#include "gen/topology/topology.h"

static const char *const settings[] = {"pipeline.schedule_file=", "model.description="};

const char *pen_named_file_path(const struct pen_topology *t, const char *setting,
                                const char *named) {
  const char *by = t->origin[pen_setting_find_path(setting) - pen_settings].file;
  const char *slash = by ? strrchr(by, '/') : NULL;
  if (!*named) pen_topology_fail(t, setting, "the name of a file");
  return *named == '/' || !slash ? named : pen_text("%.*s%s", (int)(slash - by) + 1, by, named);
}

void pen_named_file_add(struct pen_topology *t, const char *path) {
  const char **source = pen_new(t->sources.count + 1, sizeof *source);
  memcpy(source, t->sources.value, t->sources.count * sizeof *source);
  source[t->sources.count] = path;
  t->sources = (struct pen_strings){.count = t->sources.count + 1, .value = source};
}

size_t pen_named_file_prefix(const char *override) {
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (strncmp(override, settings[i], strlen(settings[i])) == 0) return strlen(settings[i]);
  return 0;
}
