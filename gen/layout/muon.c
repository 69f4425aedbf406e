/* muon.c: what UPDATE needs for the matrices of Muon (see muon.h).
 *
 * They are computed one after the other (pen_muon_step() of kernels/kernels.h): the memory is the
 * workspace of NEWTON_SCHULZ, and before and after it a copy of the gradient with other places. Of
 * splits it has that workspace, and a part of the matrix, whole, before it
 * (pen_muon_orthogonalize()); where tensor ranks share them, all splits before that. */
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
                 copy = of->count * sizeof(float),
                 splits =
                     of->split_count * pen_aligned(of[-(int64_t)of->split].count * sizeof(float)),
                 workspace = pen_signature_workspace_bytes(
                     pen_signature_of(PEN_OP_NEWTON_SCHULZ), t->cluster_device,
                     (uint32_t)t->cluster_threads_per_rank, PEN_F32, dim);
  if (of->split_count > 1) return part + workspace + (t->tensor_parallel_ranks > 1 ? splits : 0);
  return copy > workspace ? copy : workspace;
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
