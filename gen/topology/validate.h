/* validate.h: checks settings against each other. */
#ifndef PEN_VALIDATE_H
#define PEN_VALIDATE_H

#include "gen/topology/topology.h"

/* Ends the generator (78) if settings contradict each other or are not supported; prints warnings.
 * All settings must have their values. */
void pen_topology_validate(const struct pen_topology *topology);

#endif
