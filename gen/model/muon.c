/* muon.c: the matrices that Muon updates (see muon.h). */
#include "gen/model/muon.h"

#include "gen/topology/topology.h"

bool pen_muon_dims(const struct pen_graph *graph, size_t weight, int64_t dim[PEN_DIMS_MAX]) {
  const struct pen_weight *of = &graph->weight[weight];
  if (of->optimizer != PEN_OPTIMIZER_MUON || of->frozen || !graph->training) return false;
  const int64_t rows = (int64_t)of->dim[0], columns = (int64_t)(of->dim[1] / of->matrix_parts);
  dim[0] = rows < columns ? rows : columns;
  dim[1] = rows < columns ? columns : rows;
  dim[2] = graph->topology->optimizer_ns_steps;
  return true;
}
