/* read.c: reads a topology file and the -s of the command line into struct pen_topology.
 *
 * settings.def defines the name, type, limits and default of every setting. The value comes from
 * the last of these steps that sets it:
 *
 *   1. The file and its includes. source.c replaces each value by an index into the list of values
 *      as written, and libconfig parses that text: only for the grammar, since libconfig 1.5 wraps
 *      large integers and refuses whole numbers in a list of reals.
 *   2. Each -s PATH=VALUE, in order; value.c reads the text by the setting's type.
 *   3. The default in settings.def, if the setting is not set.
 *   4. defaults.c: defaults that depend on other settings.
 *
 * validate.c then checks settings against each other. Each setting keeps its origin. A message is
 * `FILE:LINE: GROUP.NAME = VALUE: what is allowed`; it begins with `-s` for an override, and with
 * FILE for a default or a missing setting (docs/contracts.md section 10). An unknown name ends the
 * generator and suggests the nearest known name. The source digest is over the files, the overrides
 * and the content of pipeline.schedule_file and model.description. */
#include "gen/topology/topology.h"

#include <stdio.h>
#include <libconfig.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/literal.h"
#include "gen/base/error.h"
#include "gen/base/escape.h"
#include "gen/topology/settings.h"
#include "gen/topology/source_value.h"
#include "gen/topology/defaults.h"
#include "gen/topology/described_settings.h"
#include "gen/topology/description.h"
#include "gen/topology/fallback.h"
#include "gen/topology/message.h"
#include "gen/topology/named_file.h"
#include "gen/topology/shapes.h"
#include "gen/topology/validate.h"
#include "gen/topology/weight_optimizer.h"
#include "gen/topology/source.h"
#include "gen/topology/value.h"
#include "runtime/plan/plan.h"

/* Static: reachable, so no leak, when a message ends the generator. */
static config_t config;

/* Warns of a former name. Ends the generator if the setting was already set by its other name. */
static void check_name(const struct pen_setting *setting, const char *path,
                       const struct pen_origin *origin, const struct pen_origin *before) {
  const char *name = pen_text("%s.%s", setting->group, setting->name);
  if (before && before->where && !before->former_name != !origin->former_name)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s: not together with %s, which is the same setting",
             origin->where, path, origin->text, before->former_name ? before->former_name : name);
  if (origin->former_name)
    pen_tell("%s%s = %s: warning: the name of this setting is now %s", origin->where, path,
             origin->text, name);
}

static void set_setting(struct pen_topology *topology, const struct pen_setting *setting,
                        const struct pen_written_value *value, struct pen_origin origin) {
  *pen_topology_origin(topology, setting) = origin;
  *(bool *)((char *)topology + setting->has_offset) = true;
  if (!pen_value_set(topology, setting, value))
    pen_topology_fail(topology, pen_text("%s.%s", setting->group, setting->name), "%s%s",
                      pen_setting_allowed(setting),
                      pen_value_is_too_large(setting, value) ? "; too large" : "");
}

/* ---- the file ---- */

/* The origin of a setting or group: `FILE:LINE: ` and the value as written. */
static struct pen_origin origin_in(const struct pen_source *source, size_t depth, const char *group,
                                   const config_setting_t *written) {
  const struct pen_written *found =
      pen_source_find(source, depth, group, config_setting_name(written));
  if (!found)
    return (struct pen_origin){
        .where = pen_source_where(source, config_setting_source_line(written)),
        .text = "...",
        .file = source->file[0]};
  return (struct pen_origin){.where = pen_text("%s:%zu: ", source->file[found->file], found->line),
                             .text = found->value,
                             .file = source->file[found->file]};
}

static void take_setting(struct pen_topology *topology, const struct pen_source *source,
                         const char *group, const config_setting_t *from) {
  const char *name = config_setting_name(from), *path = pen_text("%s.%s", group, name);
  struct pen_origin origin = origin_in(source, 1, group, from);
  const struct pen_setting *setting = pen_setting_find_any(path, &origin.former_name);
  if (!setting)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s: there is no such setting; %s", origin.where,
             pen_literal_shown(path, strlen(path)), origin.text, pen_setting_hint(path));
  check_name(setting, path, &origin, pen_topology_origin(topology, setting));
  struct pen_written_value value;
  if (!pen_source_value(source, from, &value) &&
      !(strcmp(path, "optimizer.groups") == 0 &&
        pen_source_optimizer_groups(source, from, &value, origin.text)))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s: %s", origin.where, path, origin.text,
             pen_setting_allowed(setting));
  set_setting(topology, setting, &value, origin);
}

/* `shapes = ({ sequence = 128; microbatches = 8; }, ...)`: a list of groups with both settings; the
 * same as two lists in a group. */
static void take_shapes(struct pen_topology *topology, const struct pen_source *source,
                        const config_setting_t *from) {
  static const char *const names[] = {"sequence", "microbatches"};
  struct pen_origin origin = origin_in(source, 0, "", from);
  int count = config_setting_length(from);
  for (int n = 0; n < 2; n++) {
    struct pen_written_value value = {.is_list = true,
                                      .count = (size_t)count,
                                      .literal = pen_new((size_t)count + 1, sizeof *value.literal)};
    for (int i = 0; i < count; i++) {
      const config_setting_t *shape = config_setting_get_elem(from, (unsigned)i), *one;
      bool both = config_setting_is_group(shape) && config_setting_length(shape) == 2;
      one = both ? config_setting_get_member(shape, names[n]) : NULL;
      if (!one || !pen_source_literal(source, one, &value.literal[i]))
        pen_stop(PEN_EXIT_TOPOLOGY,
                 "%sshapes = %s: shape %d must be { sequence = NUMBER; microbatches = NUMBER; }",
                 origin.where, origin.text, i + 1);
    }
    set_setting(topology, pen_setting_find("shapes", strlen("shapes"), names[n]), &value, origin);
  }
}

/* The settings of a group of a fallback: `pipeline = { ranks = 2; };`. */
static void take_changes(struct pen_topology *topology, const struct pen_source *source,
                         struct pen_fallback *fallback, const config_setting_t *from) {
  const char *group = config_setting_name(from);
  const int count = config_setting_is_group(from) ? config_setting_length(from) : 0;
  struct pen_origin origin = {.where = pen_source_where(source, config_setting_source_line(from))};
  if (!pen_setting_is_group(group) || !config_setting_is_group(from))
    pen_stop(PEN_EXIT_TOPOLOGY, "%sfallback %u: %s: %s", origin.where, topology->fallback_count,
             group,
             pen_setting_is_group(group) ? "a group of settings" : pen_setting_hint_group(group));
  for (int i = 0; i < count; i++) {
    const config_setting_t *one = config_setting_get_elem(from, (unsigned)i);
    const char *name = config_setting_name(one), *path = pen_text("%s.%s", group, name);
    struct pen_fallback_change change = {.origin = origin};
    const struct pen_setting *setting = pen_setting_find_any(path, &change.origin.former_name);
    change.setting = setting;
    const struct pen_written *written = pen_source_find_after(
        source, 2, group, name, pen_fallback_count_changes(topology, &change));
    change.origin.text = written ? written->value : "...";
    if (written)
      change.origin.where = pen_text("%s:%zu: ", source->file[written->file], written->line);
    if (!setting || !pen_fallback_may_change(setting) ||
        !pen_source_value(source, one, &change.value))
      pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s, in fallback %u: %s", change.origin.where, path,
               change.origin.text, topology->fallback_count,
               !setting                            ? pen_setting_hint(path)
               : !pen_fallback_may_change(setting) ? pen_fallback_allowed
                                                   : pen_setting_allowed(setting));
    check_name(setting, path, &change.origin, pen_fallback_origin(fallback, setting));
    pen_fallback_add(fallback, &change);
  }
}

/* `fallback = ({ pipeline = { ranks = 2; }; }, ...)`: a list of groups of groups of settings. */
static void take_fallbacks(struct pen_topology *topology, const struct pen_source *source,
                           const config_setting_t *from) {
  const struct pen_origin origin = origin_in(source, 0, "", from);
  const int count = config_setting_is_list(from) ? config_setting_length(from) : -1;
  struct pen_fallback *fallback = pen_new((size_t)(count > 0 ? count : 1), sizeof *fallback);
  bool is_list_of_groups = count >= 0 && count <= PEN_FALLBACKS_MAX;
  topology->fallback_changes = fallback;
  for (int f = 0; f < count && is_list_of_groups; f++) {
    const config_setting_t *groups = config_setting_get_elem(from, (unsigned)f);
    is_list_of_groups = config_setting_is_group(groups);
    topology->fallback_count++;
    for (int g = 0; is_list_of_groups && g < config_setting_length(groups); g++)
      take_changes(topology, source, &fallback[f], config_setting_get_elem(groups, (unsigned)g));
  }
  if (!is_list_of_groups)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%sfallback = %s: a list of at most %d groups of settings, as in ( { pipeline = { "
             "ranks = 2; }; } )",
             origin.where, origin.text, PEN_FALLBACKS_MAX);
}

static void take_group(struct pen_topology *topology, const struct pen_source *source,
                       const config_setting_t *from) {
  const char *name = config_setting_name(from);
  struct pen_origin origin = origin_in(source, 0, "", from);
  bool known = pen_setting_is_group(name);
  if (!strcmp(name, "shapes") && config_setting_is_list(from)) {
    take_shapes(topology, source, from);
    return;
  }
  if (!strcmp(name, "fallback")) {
    take_fallbacks(topology, source, from);
    return;
  }
  if (known && !config_setting_is_group(from))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s: a group: %s = { NAME = VALUE; ... };", origin.where,
             name, origin.text, name);
  if (!known) {
    const char *hint =
        config_setting_is_group(from) ? pen_setting_hint_group(name) : pen_setting_hint(name);
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s = %s: there is no such group; %s", origin.where,
             pen_literal_shown(name, strlen(name)), origin.text, hint);
  }
  int count = config_setting_length(from);
  for (int i = 0; i < count; i++)
    take_setting(topology, source, name, config_setting_get_elem(from, (unsigned)i));
}

/* libconfig reports only the line; the scanner also knows the setting. */
static void fail_duplicate(const struct pen_source *source) {
  for (size_t i = 0; i < source->written_count; i++) {
    const struct pen_written *again = &source->written[i];
    for (size_t j = 0; j < i; j++) {
      const struct pen_written *first = &source->written[j];
      if (first->enclosing != again->enclosing || strcmp(first->name, again->name)) continue;
      pen_stop(PEN_EXIT_TOPOLOGY, "%s:%zu: %s%s%s = %s: given before, at %s:%zu",
               source->file[again->file], again->line, again->group, *again->group ? "." : "",
               again->name, again->value, source->file[first->file], first->line);
    }
  }
}

static void parse_source(const struct pen_source *source) {
  config_init(&config);
  if (config_read_string(&config, source->text)) return;
  const char *text = config_error_text(&config);
  if (text && strstr(text, "duplicate")) fail_duplicate(source);
  int line = config_error_line(&config);
  pen_stop(PEN_EXIT_TOPOLOGY, "%s%s; a topology is made of GROUP = { NAME = VALUE; ... };",
           pen_source_where(source, line > 0 ? (size_t)line : 1), text ? text : "cannot be read");
}

static void take_file(struct pen_topology *topology, const struct pen_source *source) {
  parse_source(source);
  const config_setting_t *root = config_root_setting(&config);
  int count = config_setting_length(root);
  for (int i = 0; i < count; i++)
    take_group(topology, source, config_setting_get_elem(root, (unsigned)i));
  config_destroy(&config);
  topology->sources = (struct pen_strings){.count = source->file_count, .value = source->file};
}

/* ---- overrides and defaults ---- */

static void take_override(struct pen_topology *topology, const char *override) {
  const char *equals = strchr(override, '=');
  size_t bytes = equals ? (size_t)(equals - override) : strlen(override);
  const char *path = pen_text("%.*s", (int)bytes, override), *text = equals ? equals + 1 : "";
  const char *shown = pen_literal_shown(text, strlen(text));
  struct pen_origin origin = {.where = "-s ", .text = shown};
  if (pen_setting_is_group(path))
    pen_stop(PEN_EXIT_TOPOLOGY, "-s %s = %s: a group: -s %s.NAME=VALUE, with one of %s", path,
             shown, path, pen_setting_names(path));
  const struct pen_setting *setting = pen_setting_find_any(path, &origin.former_name);
  if (!setting)
    pen_stop(PEN_EXIT_TOPOLOGY, "-s %s = %s: there is no such setting; %s",
             pen_literal_shown(path, bytes), shown, pen_setting_hint(path));
  check_name(setting, path, &origin, pen_topology_origin(topology, setting));
  struct pen_written_value value = pen_value_from_text(setting, text);
  set_setting(topology, setting, &value, origin);
}

static void take_defaults(struct pen_topology *topology) {
  for (size_t i = 0; i < pen_setting_count; i++) {
    const struct pen_setting *setting = &pen_settings[i];
    if (!setting->default_value || pen_topology_origin(topology, setting)->where) continue;
    struct pen_written_value value = pen_value_from_text(setting, setting->default_value);
    if (!pen_value_set(topology, setting, &value))
      pen_stop(PEN_EXIT_TOPOLOGY, "settings.def: the default of %s.%s is not allowed",
               setting->group, setting->name);
  }
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t bytes = strlen(name);
  if (bytes > 4 && !strcmp(name + bytes - 4, ".cfg")) bytes -= 4;
  return pen_visible_text(name, bytes);
}

uint32_t *pen_topology_rank_hosts(const struct pen_topology *t) {
  size_t total = (size_t)pen_topology_process_count(t), hosts = t->cluster_hosts.count,
         per_host = (size_t)t->cluster_ranks_per_host;
  uint32_t *host = pen_new(total, sizeof *host);
  for (size_t r = 0; r < total; r++)
    host[r] = t->cluster_mapping.choice == PEN_UNSET ? (uint32_t)t->cluster_mapping.value[r]
              : t->cluster_mapping.choice == PEN_MAPPING_BLOCK ? (uint32_t)(r / per_host)
                                                               : (uint32_t)(r % hosts);
  return host;
}

static struct pen_topology *copy_of(const struct pen_topology *topology) {
  struct pen_topology *copy = pen_new(1, sizeof *copy);
  struct pen_origin *origin = pen_new(pen_setting_count, sizeof *origin);
  memcpy(origin, topology->origin, pen_setting_count * sizeof *origin);
  *copy = *topology;
  copy->origin = origin;
  return copy;
}

/* Gives each setting its value, and checks all. `main`: that of a fallback; else null. */
static void resolve(struct pen_topology *topology, const struct pen_topology *main) {
  take_defaults(topology);
  pen_topology_require(topology);
  if (main) pen_fallback_resolve(topology, main);
  pen_optimizer_groups_read(topology);
  pen_topology_set_defaults(topology);
  pen_topology_sort_shapes(topology);
  pen_topology_validate(topology);
  pen_topology_expand_lists(topology);
}

/* `written`: the settings as they were set; `main`: the resolved ones. */
static struct pen_topology *fallback_of(const struct pen_topology *written,
                                        const struct pen_topology *main, uint32_t index) {
  const struct pen_fallback *fallback = &written->fallback_changes[index];
  struct pen_topology *topology = copy_of(written);
  topology->fallback = index + 1;
  topology->fallback_count = 0;
  for (size_t i = 0; i < fallback->count; i++)
    pen_fallback_forget(topology, fallback->change[i].setting);
  for (size_t i = 0; i < fallback->count; i++) {
    const struct pen_fallback_change *change = &fallback->change[i];
    set_setting(topology, change->setting, &change->value, change->origin);
  }
  resolve(topology, main);
  return topology;
}

/* The settings as the file and the overrides set them. */
static struct pen_topology *read_written(const char *path, const char *const *override,
                                         size_t override_count, struct sha256_ctx *hash) {
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  topology->origin = pen_new(pen_setting_count, sizeof *topology->origin);
  topology->path = path;
  topology->name = base_name(path);
  for (size_t i = 0; i < pen_setting_count; i++)
    if (pen_settings[i].type == PEN_CHOICE)
      *(int *)(void *)((char *)topology + pen_settings[i].offset) = PEN_UNSET;
  topology->costs_overlap = topology->costs_live_weight = -1;
  topology->costs_byte = topology->costs_byte_host = -1;
  topology->pipeline_search_seconds = topology->pipeline_search_seed = -1;
  topology->fallbacks = pen_new(PEN_FALLBACKS_MAX, sizeof(struct pen_topology *));
  sha256_init(hash);
  take_file(topology, pen_source_read(path, hash));
  for (size_t i = 0; i < override_count; i++) {
    take_override(topology, override[i]);
    if (pen_named_file_prefix(override[i])) continue; /* the digest has its content, below */
    sha256_update(hash, strlen(override[i]) + 1, (const uint8_t *) override[i]);
  }
  pen_topology_take_description(topology);
  return topology;
}

struct pen_topology *pen_topology_read_written(const char *path, const char *const *override,
                                               size_t override_count) {
  struct sha256_ctx hash;
  return read_written(path, override, override_count, &hash);
}

struct pen_topology *pen_topology_with(const struct pen_topology *written,
                                       const struct pen_setting_text *change, size_t count) {
  struct pen_topology *topology = copy_of(written);
  for (size_t i = 0; i < count; i++) {
    const struct pen_setting *setting = pen_setting_find_path(change[i].path);
    const struct pen_written_value value = pen_value_from_text(setting, change[i].text);
    set_setting(
        topology, setting, &value,
        (struct pen_origin){.where = pen_text("%s: ", topology->path), .text = change[i].text});
  }
  resolve(topology, NULL);
  return topology;
}

static struct pen_topology *complete(struct pen_topology *topology, struct sha256_ctx *hash) {
  const struct pen_topology *written = copy_of(topology);
  resolve(topology, NULL);
  for (uint32_t f = 0; f < topology->fallback_count; f++)
    topology->fallbacks[f] = fallback_of(written, topology, f);
  sha256_update(hash, topology->schedule_bytes, (const uint8_t *)topology->schedule_text);
  if (topology->description)
    sha256_update(hash, sizeof topology->description->digest, topology->description->digest);
  sha256_digest(hash, sizeof topology->source_digest, topology->source_digest);
  return topology;
}

struct pen_topology *pen_topology_read(const char *path, const char *const *override,
                                       size_t override_count) {
  struct sha256_ctx hash;
  struct pen_topology *topology = read_written(path, override, override_count, &hash);
  return complete(topology, &hash);
}

/* Sets what the topology leaves open: on each host the ranks that it says, or one. */
static void set_open(struct pen_topology *t) {
  const long long hosts = t->cluster_hosts.count ? (long long)t->cluster_hosts.count : 1,
                  per_host = t->has_cluster_ranks_per_host ? t->cluster_ranks_per_host : 1;
  const long long first = t->plan_microbatch.count ? t->plan_microbatch.value[0] : 1;
  const struct pen_setting_text open[] = {
      {"pipeline.ranks", pen_text("%lld", hosts * per_host)},
      {"pipeline.stages_per_rank", "1"},
      {"pipeline.microbatches", "2"},
      {"pipeline.schedule", "1f1b"},
      {"batch.microbatch", pen_text("%lld", first)},
      {"data_parallel.replicas", "1"},
  };
  for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
    const struct pen_setting *setting = pen_setting_find_path(open[i].path);
    const struct pen_written_value value = pen_value_from_text(setting, open[i].text);
    set_setting(t, setting, &value,
                (struct pen_origin){.where = pen_text("%s: ", t->path), .text = open[i].text});
  }
}

struct pen_topology *pen_topology_read_blocks(const char *path, const char *const *override,
                                              size_t override_count) {
  struct sha256_ctx hash;
  struct pen_topology *topology = read_written(path, override, override_count, &hash);
  topology->only_measures = topology->has_plan_ranks && !topology->has_pipeline_ranks;
  if (topology->only_measures) {
    pen_topology_require_plan(topology);
    set_open(topology);
  }
  return complete(topology, &hash);
}
