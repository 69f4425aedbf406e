/* muon.h: the matrices that Muon updates. */
#ifndef PEN_MODEL_MUON_H
#define PEN_MODEL_MUON_H

#include "gen/model/graph.h"

/* Whether UPDATE runs NEWTON_SCHULZ for the tensor of a weight of the graph, once for each of its
 * matrix_parts; then `dim` has the dims of the op. */
bool pen_muon_dims(const struct pen_graph *graph, size_t weight, int64_t dim[PEN_DIMS_MAX]);

/* The multiply-adds of an iteration of NEWTON_SCHULZ for `elements` of that tensor, but for a
 * factor: of a matrix of so many rows and columns its smaller side for each. */
double pen_muon_work(uint64_t rows, uint64_t columns, uint64_t elements);

/* Gives the last weight of the graph a sole owner, if UPDATE runs NEWTON_SCHULZ for it and data
 * ranks may shard: the member of a group that has the least to compute of those before; of the
 * splits of a tensor that of the first. */
void pen_muon_set_owner(struct pen_graph *graph);

#endif
