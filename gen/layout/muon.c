/* muon.c: what UPDATE needs for the matrices of Muon (see muon.h).
 *
 * They are computed one after the other (pen_muon_orthogonalize() of kernels/kernels.h): the memory
 * is that of a part of the matrix and, after it, the workspace of NEWTON_SCHULZ; where tensor ranks
 * share the splits of a matrix, all splits come before that. */
#include "gen/layout/muon.h"

#include "gen/model/muon.h"
#include "gen/model/op_signature.h"
#include "gen/topology/topology.h"

static uint64_t weight_bytes(const struct pen_graph *graph, size_t weight) {
  const struct pen_topology *t = graph->topology;
  int64_t dim[PEN_DIMS_MAX];
  if (!pen_muon_dims(graph, weight, dim)) return 0;
  const struct pen_weight *of = &graph->weight[weight];
  const uint64_t part = pen_aligned((uint64_t)dim[0] * (uint64_t)dim[1] * sizeof(float)),
                 splits =
                     of->split_count * pen_aligned(of[-(int64_t)of->split].count * sizeof(float)),
                 workspace = pen_signature_workspace_bytes(
                     pen_signature_of(PEN_OP_NEWTON_SCHULZ), t->cluster_device,
                     (uint32_t)t->cluster_threads_per_rank, PEN_F32, dim);
  return part + workspace + (of->split_count > 1 && t->tensor_parallel_ranks > 1 ? splits : 0);
}

uint64_t pen_muon_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                        uint32_t rank) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++)
    for (size_t i = 0; partition->rank_of[s] == rank && i < graph[s]->weight_count; i++) {
      const uint64_t bytes = weight_bytes(graph[s], i);
      if (bytes > most) most = bytes;
    }
  return most;
}
