/* defaults.h: settings that must be given, and defaults that depend on other settings. */
#ifndef PEN_DEFAULTS_H
#define PEN_DEFAULTS_H

#include "gen/topology/topology.h"

/* What cluster.device = "auto" means: "cpu", unless a program sets "cuda" before it reads a
 * topology. */
extern const char *pen_device_auto;

/* Ends the generator (78) when a setting is missing. Reads pipeline.schedule_file where the
 * schedule needs it (66 when it cannot be read). */
void pen_topology_require(struct pen_topology *topology);

/* Sets the defaults that depend on other settings. Values that these contradict stay as they are,
 * for pen_topology_validate(). */
void pen_topology_set_defaults(struct pen_topology *topology);

/* Expands lists that were written as one value to one value for each stage; fails (78) when a list
 * has another length. */
void pen_topology_expand_lists(struct pen_topology *topology);

#endif
