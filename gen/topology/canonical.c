/* canonical.c: the settings as text, the same however they were written. */
#include <stdio.h>
#include <string.h>

#include <nettle/sha2.h>

#include "gen/base/arena.h"
#include "gen/topology/described_settings.h"
#include "gen/topology/description.h"
#include "gen/topology/fallback.h"
#include "gen/topology/topology.h"
#include "gen/topology/settings.h"
#include "gen/topology/value.h"
#include "gen/topology/weight_optimizer.h"

/* For files, the SHA-256 of their content instead of the path: of a schedule file as it is, of a
 * description in canonical form. */
static const char *canonical_value(const struct pen_topology *topology,
                                   const struct pen_setting *setting) {
  if (setting->offset == offsetof(struct pen_topology, model_description) && topology->description)
    return pen_text("sha256 %s", pen_hex(topology->description->digest, SHA256_DIGEST_SIZE));
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

/* What the fallbacks change. */
static const char *fallbacks_text(const struct pen_topology *topology) {
  const char *text = "";
  for (uint32_t f = 0; f < topology->fallback_count; f++)
    for (size_t i = 0; i < topology->fallback_changes[f].count; i++) {
      const struct pen_setting *setting = topology->fallback_changes[f].change[i].setting;
      text = pen_text("%sfallback %u: %s.%s = %s\n", text, f + 1, setting->group, setting->name,
                      canonical_value(topology->fallbacks[f], setting));
    }
  return text;
}

/* Whether a setting decides on what a binary does: not those of penstock-plan, nor what a log alone
 * shows, nor those of an optimizer that no tensor has, nor what a description says. */
static bool decides(const struct pen_topology *topology, const struct pen_setting *setting) {
  return strcmp(setting->group, "plan") != 0 && strcmp(setting->name, "peak_tflops") != 0 &&
         !(topology->description && pen_description_replaces(setting)) &&
         pen_optimizer_has_setting(topology, setting);
}

const char *pen_topology_canonical(const struct pen_topology *topology) {
  char *text = NULL;
  size_t bytes = 0;
  for (size_t i = 0; i < pen_setting_count; i++) {
    if (!decides(topology, &pen_settings[i])) continue;
    const char *value = canonical_value(topology, &pen_settings[i]);
    if (!value) continue;
    const char *line = pen_text("%s.%s = %s\n", pen_settings[i].group, pen_settings[i].name, value);
    PEN_RESERVE(text, bytes + strlen(line) + 1);
    strcpy(text + bytes, line);
    bytes += strlen(line);
  }
  return topology->fallback_count ? pen_text("%s%s", text, fallbacks_text(topology)) : text;
}
