/* built.c: what this version builds of what the table of settings has. A later version shortens
 * these lists. */
#include <string.h>

#include "gen/topology/topology.h"
#include "gen/topology/settings.h"
#include "gen/topology/validate.h"

/* Settings of which this version builds some choices alone. */
static const struct {
  const char *path, *choices;
} built[] = {
    {"data_parallel.shard", "none optimizer weights"},
};

static void check_choices(const struct pen_topology *topology) {
  for (size_t i = 0; i < sizeof built / sizeof *built; i++) {
    const struct pen_setting *setting = pen_setting_find_path(built[i].path);
    const char *value = *(const char *const *)((const char *)topology + setting->offset);
    if (!pen_setting_has_choice(built[i].choices, value))
      pen_topology_fail(topology, built[i].path, "this version allows %s",
                        pen_setting_quoted(built[i].choices));
  }
}

void pen_topology_check_built(const struct pen_topology *topology) { check_choices(topology); }
