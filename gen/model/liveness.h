/* liveness.h: the segment and the shared storage of each value. */
#ifndef PEN_LIVENESS_H
#define PEN_LIVENESS_H

#include "gen/model/graph.h"

/* Sets base and storage of all values, from the uses in the programs. After pen_backward. */
void pen_assign_storage(struct pen_graph *graph);

#endif
