/* families.h: the functions that families.def names. */
#ifndef PEN_FAMILIES_H
#define PEN_FAMILIES_H

#include "gen/model.h"

#define PEN_FAMILY(name, needs_tokens, loss, meaning)  \
  void pen_family_##name(struct pen_graph *graph);     \
  char *pen_config_##name(const struct pen_topology *topology);
#include "gen/families.def"

#endif
