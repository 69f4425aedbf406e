/* muon.c: the matrices that Muon updates (see muon.h). */
#include "gen/model/muon.h"

#include "gen/base/arena.h"
#include "gen/topology/topology.h"

bool pen_muon_dims(const struct pen_graph *graph, size_t weight, int64_t dim[PEN_DIMS_MAX]) {
  const struct pen_weight *of = &graph->weight[weight];
  if (of->optimizer != PEN_OPTIMIZER_MUON || of->frozen || !graph->topology->trains) return false;
  const int64_t rows = (int64_t)of->tensor_dim[0],
                columns = (int64_t)(of->tensor_dim[1] / of->matrix_parts);
  dim[0] = rows < columns ? rows : columns;
  dim[1] = rows < columns ? columns : rows;
  dim[2] = graph->topology->optimizer_ns_steps;
  return true;
}

double pen_muon_work(uint64_t rows, uint64_t columns, uint64_t elements) {
  return (double)(rows < columns ? rows : columns) * (double)elements;
}

/* Of a split its share. */
static double work_of(const struct pen_graph *graph, size_t weight) {
  int64_t dim[PEN_DIMS_MAX];
  if (!pen_muon_dims(graph, weight, dim)) return 0;
  return pen_muon_work((uint64_t)dim[0], (uint64_t)dim[1], graph->weight[weight].count);
}

void pen_muon_set_owner(struct pen_graph *graph) {
  const size_t last = graph->weight_count - 1;
  const int64_t members = graph->topology->data_parallel_shard_ranks;
  if (members < 2 || work_of(graph, last) == 0) return;
  double *work = pen_new((size_t)members, sizeof *work);
  int64_t least = 0;
  for (size_t i = 0; i < last; i++)
    if (graph->weight[i].sole_owner) work[graph->weight[i].sole_owner - 1] += work_of(graph, i);
  for (int64_t m = 1; m < members; m++)
    if (work[m] < work[least]) least = m;
  graph->weight[last].sole_owner =
      graph->weight[last].split ? graph->weight[last - 1].sole_owner : (uint32_t)least + 1;
  pen_free(work);
}
