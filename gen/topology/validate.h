/* validate.h: what settings demand of each other. */
#ifndef PEN_VALIDATE_H
#define PEN_VALIDATE_H

#include "gen/topology/topology.h"

/* Ends the generator (78) when settings contradict each other, or ask for what this version does
 * not support; prints warnings. All settings have their values. */
void pen_topology_validate(const struct pen_topology *topology);

#endif
