/* backward.h: derives the programs of a stage from its forward ops. */
#ifndef PEN_BACKWARD_H
#define PEN_BACKWARD_H

#include "gen/model/graph.h"

/* Adds the programs with their workspaces: F, I, W and B in training, else only F. */
void pen_backward(struct pen_graph *graph);

#endif
