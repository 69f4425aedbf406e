/* measured_cost.c: reads the file of --costs; its parts by measured_stages.c, measured_blocks.c and
 * measured_links.c. */
#include "gen/timing/measured_cost.h"

#include <string.h>

#include <jansson.h>

#include "gen/base/arena.h"
#include "gen/timing/costs_json.h"

static const char *read_text(const char *path, const json_t *root, const char *key) {
  const char *text = json_string_value(json_object_get(root, key));
  if (!text) pen_costs_json_fail(path, key, "must be a string");
  return pen_text("%s", text);
}

/* Version 2: what the command `measure` writes. */
static void read_blocks(struct pen_measured *measured, const json_t *root) {
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
    pen_costs_json_fail(path, "the file",
                        "must be an object, as penstock-NAME train --measure writes it");
  const json_t *version = json_object_get(root, "version"),
               *overlap = json_object_get(root, "overlap");
  measured->version = version ? (uint32_t)pen_costs_json_count(path, "version", version, 1, 2) : 1;
  measured->overlap = overlap ? pen_costs_json_time(path, "overlap", overlap) : -1;
  if (measured->version == 1)
    measured->stages = pen_measured_stages_read(path, root);
  else
    read_blocks(measured, root);
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
  if (!measured->blocks) return;
  check_text(measured, "device", measured->device, t->cluster_device);
  check_text(measured, "dtype", measured->dtype, t->model_dtype);
  if (measured->sequence != (uint64_t)t->sequence)
    pen_costs_json_fail(
        measured->path, "sequence",
        pen_text("another was measured than model.sequence = %lld", (long long)t->sequence));
}
