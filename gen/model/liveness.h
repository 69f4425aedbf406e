/* liveness.h: the segment and the shared storage of each value. */
#ifndef PEN_LIVENESS_H
#define PEN_LIVENESS_H

#include "gen/model/graph.h"

/* Sets the segment and the storage of all values, by their uses in the programs. Call it after
 * pen_backward(). */
void pen_assign_storage(struct pen_graph *graph);

#endif
