/* canonical.c: a settled topology as text that does not depend on how it was written, and as make's
 * dependencies. */
#include <stdio.h>
#include <errno.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/topology.h"
#include "gen/topology/settings.h"
#include "gen/topology/value.h"

/* A path does not enter the digest, but what lies there: the SHA-256 of the schedule's file, when
 * it is used. */
static const char *canonical_value(const struct pen_topology *topology,
                                   const struct pen_setting *setting) {
  if (setting->offset != offsetof(struct pen_topology, pipeline_schedule_file))
    return pen_value_text(topology, setting);
  if (!topology->schedule_text) return NULL;
  uint8_t digest[SHA256_DIGEST_SIZE];
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, topology->schedule_bytes, (const uint8_t *)topology->schedule_text);
  sha256_digest(&hash, sizeof digest, digest);
  return pen_text("sha256 %s", pen_hex(digest, sizeof digest));
}

const char *pen_topology_canonical(const struct pen_topology *topology) {
  char *text = NULL;
  size_t bytes = 0, capacity = 0;
  for (size_t i = 0; i < pen_setting_count; i++) {
    const char *value = canonical_value(topology, &pen_settings[i]);
    if (!value) continue;
    const char *line = pen_text("%s.%s = %s\n", pen_settings[i].group, pen_settings[i].name, value);
    text = pen_grow(text, &capacity, bytes + strlen(line) + 1, 1);
    strcpy(text + bytes, line);
    bytes += strlen(line);
  }
  return text;
}

/* Writes a file's name as make wants it; in a rule's target a per cent sign would make a pattern.
 */
static void write_name(FILE *out, const char *name, bool target) {
  for (; *name; name++) {
    if (*name == '$') fputc('$', out);
    if (strchr(" \t#\\", *name) || (target && strchr(":%", *name))) fputc('\\', out);
    fputc(*name, out);
  }
}

void pen_topology_write_dependencies(const struct pen_topology *topology, const char *target,
                                     const char *path) {
  FILE *out = fopen(path, "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "%s: %s", path, strerror(errno));
  write_name(out, target, true);
  fputc(':', out);
  for (size_t i = 0; i < topology->sources.count; i++) {
    fputc(' ', out);
    write_name(out, topology->sources.value[i], false);
  }
  fputs("\n", out);
  for (size_t i = 0; i < topology->sources.count; i++) {
    fputc('\n', out);
    write_name(out, topology->sources.value[i], true);
    fputs(":\n", out);
  }
  bool failed = ferror(out);
  if (fclose(out) || failed) pen_stop(PEN_EXIT_WRITE, "%s: %s", path, strerror(errno));
}
