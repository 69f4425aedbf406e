/* described_settings.h: the settings of a described model, which follow from its description. */
#ifndef PEN_DESCRIBED_SETTINGS_H
#define PEN_DESCRIBED_SETTINGS_H

#include <stdbool.h>

struct pen_setting;  /* settings.h */
struct pen_topology; /* topology.h */

/* Reads model.description, if the family is described, and sets what follows from it: model.layers,
 * model.hidden, ... Ends the generator (78) if one of them is given. */
void pen_topology_take_description(struct pen_topology *topology);

/* Whether a setting of the group model has no meaning with family described: the description says
 * what it would. */
bool pen_description_replaces(const struct pen_setting *setting);

#endif
