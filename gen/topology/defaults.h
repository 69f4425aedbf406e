/* defaults.h: settings that must be given, and defaults that depend on other settings. */
#ifndef PEN_DEFAULTS_H
#define PEN_DEFAULTS_H

#include "gen/topology/topology.h"

/* What cluster.device = "auto" means: the CPU, unless a program sets another before it reads a
 * topology. */
extern enum pen_device_kind pen_device_auto;

/* Ends the generator (78) if a setting is missing. Reads pipeline.schedule_file if the schedule
 * needs it (66 if it cannot be read). */
void pen_topology_require(struct pen_topology *topology);

/* Sets the defaults that depend on other settings. Does not change settings that contradict each
 * other: pen_topology_validate() reports them. */
void pen_topology_set_defaults(struct pen_topology *topology);

/* Expands lists that are written as one value to a value for each stage; fails (78) if a list has
 * another length. */
void pen_topology_expand_lists(struct pen_topology *topology);

/* Fails (78) if a topology, as it is written, lacks what penstock-plan needs: the group plan, and
 * what describes the model. */
void pen_topology_require_plan(const struct pen_topology *written);

#endif
