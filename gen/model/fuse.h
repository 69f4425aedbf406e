/* fuse.h: matrix products of one value as one product, for devices where a launch costs. */
#ifndef PEN_FUSE_H
#define PEN_FUSE_H

#include "gen/model/graph.h"

/* Replaces the products among the forward ops from `first_op` on, those of the block that was
 * emitted last, whose results one op reads. Nothing changes for the device cpu. */
void pen_fuse_products(struct pen_graph *graph, size_t first_op);

#endif
