/* measured_cost.c: reads the file of --costs; its parts by measured_blocks.c and measured_links.c.
 */
#include "gen/timing/measured_cost.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/input_file.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/timing/costs_json.h"

static const char *read_text(const char *path, const json_t *root, const char *key) {
  const char *text = json_string_value(json_object_get(root, key));
  if (!text) pen_costs_json_fail(path, key, "must be a string");
  return pen_text("%s", text);
}

/* The line on which the file has a key at first. */
static unsigned line_of(const char *path, const char *key) {
  struct pen_input_error refused;
  size_t bytes;
  char *text = pen_input_read(path, PEN_INPUT_TABLE, &bytes, &refused);
  const char *found = text ? strstr(text, pen_text("\"%s\"", key)) : NULL;
  unsigned line = 1;
  for (const char *at = text; found && at < found; at++) line += *at == '\n';
  free(text);
  return line;
}

/* `version`: NULL in a file that has none. */
static void check_version(const char *path, const json_t *version, bool has_stages) {
  const char *key = version ? "version" : "stages";
  const uint64_t number =
      version || !has_stages ? pen_costs_json_count(path, "version", version, 0, UINT32_MAX) : 1;
  if (number == 1)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s:%u: %s: costs of version 1 (of the stages of one plan, by train --measure) are no "
             "longer read; measure those of blocks, for any plan: 'penstock-NAME measure --output "
             "FILE', by a binary that make or 'penstock-gen --blocks' built, then 'penstock-gen "
             "--costs=FILE'",
             path, line_of(path, key), key);
  if (number != 2) pen_costs_json_fail(path, "version", "must be 2");
}

static void read_costs(struct pen_measured *measured, const json_t *root) {
  const char *path = measured->path;
  measured->device = read_text(path, root, "device");
  measured->dtype = read_text(path, root, "dtype");
  measured->sequence =
      pen_costs_json_setting(path, "sequence", json_object_get(root, "sequence"), "model.sequence");
  measured->blocks = pen_measured_blocks_read(path, json_object_get(root, "blocks"));
  measured->links = pen_measured_links_read(path, json_object_get(root, "messages"),
                                            json_object_get(root, "collectives"));
  const json_t *optimizer = json_object_get(root, "optimizer"),
               *norm = json_object_get(optimizer, "norm_ms_per_element");
  measured->update_element = pen_costs_json_time(path, "optimizer.ms_per_element",
                                                 json_object_get(optimizer, "ms_per_element"));
  measured->norm_element =
      norm ? pen_costs_json_time(path, "optimizer.norm_ms_per_element", norm) : 0;
}

struct pen_measured *pen_measured_read(const char *path) {
  struct pen_measured *measured = pen_new(1, sizeof *measured);
  json_t *root = pen_costs_json_load(path);
  measured->path = path;
  if (!json_is_object(root))
    pen_costs_json_fail(path, "the file", "must be an object, as penstock-NAME measure writes it");
  check_version(path, json_object_get(root, "version"), json_object_get(root, "stages") != NULL);
  const json_t *overlap = json_object_get(root, "overlap");
  measured->overlap = overlap ? pen_costs_json_time(path, "overlap", overlap) : -1;
  read_costs(measured, root);
  json_decref(root);
  return measured;
}

static void check_text(const struct pen_measured *measured, const char *key, const char *text,
                       const char *wanted) {
  if (strcmp(text, wanted) != 0)
    pen_costs_json_fail(measured->path, key,
                        pen_text("%s was measured, the topology has %s", text, wanted));
}

void pen_measured_check(const struct pen_measured *measured, const struct pen_topology *t) {
  check_text(measured, "device", measured->device, pen_device_row(t->cluster_device)->text);
  check_text(measured, "dtype", measured->dtype, pen_dtype_text((int)t->model_dtype));
  if (measured->sequence != (uint64_t)t->sequence)
    pen_costs_json_fail(
        measured->path, "sequence",
        pen_text("another was measured than model.sequence = %lld", (long long)t->sequence));
}
