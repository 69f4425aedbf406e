/* step_time.c: the time of a whole training step by measured costs (see step_time.h).
 *
 * After its last action a rank sums the squares of its gradients. No rank updates a weight before
 * all have done so. So the step ends when the slowest rank has updated its weights, after the last
 * rank has its norm. Where shards differ in size the largest one counts. What NEWTON_SCHULZ adds to
 * the time of an element takes as long as so many flops of the forward programs; matrices are
 * spread evenly over their owners (gen/model/muon.c, gen/layout/matrix_exchanges.c). Where tensor
 * ranks share them, the splits go to their owners and back. */
#include "gen/timing/step_time.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/model/muon.h"
#include "gen/model/op_signature.h"
#include "gen/model/splits.h"
#include "gen/timing/collective_cost.h"
#include "runtime/plan/shard.h"

/* What a rank has to do after its actions, in elements, and the flops of NEWTON_SCHULZ; of matrices
 * that tensor ranks share how many a data rank updates, and the bytes of its splits. */
struct rank_elements {
  uint64_t normed, updated;
  double flops, matrices, split_bytes;
};

/* Of a split its share; of a stack those of all its tensors. */
static double muon_flops(const struct pen_graph *graph, size_t weight) {
  int64_t dim[PEN_DIMS_MAX];
  if (!pen_muon_dims(graph, weight, dim)) return 0;
  return (double)pen_tensor_count(&graph->weight[weight]) * graph->weight[weight].matrix_parts *
         pen_signature_flops(pen_signature_of(PEN_OP_NEWTON_SCHULZ), dim) /
         graph->weight[weight].split_count;
}

/* What a flop of the forward programs takes. */
static double time_of_flop(const struct pen_cost_model *cost,
                           const struct pen_partition *partition) {
  double flops = 0, forward = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    flops += pen_program_flops(&cost->graph[s]->program[PEN_PROGRAM_F]);
    forward += cost->alone[s].forward;
  }
  return flops > 0 ? forward / flops : 0;
}

/* [rank]; the sums are exact in any order of the weights. */
static struct rank_elements *elements_of(const struct pen_cost_model *cost,
                                         const struct pen_partition *partition) {
  const uint32_t shards = pen_group_size(partition, PEN_SHARD),
                 updated_by = partition->sharding == PEN_SHARD_NONE ? 1 : shards,
                 tensor_ranks = pen_group_size(partition, PEN_TENSOR);
  struct rank_elements *elements = pen_new(partition->rank_count, sizeof *elements);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    const struct pen_graph *graph = cost->graph[s];
    struct rank_elements *of_rank = &elements[partition->rank_of[s]];
    for (uint32_t w = 0; w < graph->weight_count; w++) {
      const struct pen_weight *weight = &graph->weight[w];
      if (!pen_graph_has_weight(graph, w) || weight->frozen || pen_is_tied_head(graph, w)) continue;
      of_rank->normed += pen_shard_most(weight->count, shards);
      of_rank->updated += pen_shard_most(weight->count, updated_by);
      of_rank->flops += muon_flops(graph, w) / updated_by;
      if (weight->optimizer != PEN_OPTIMIZER_MUON || tensor_ranks == 1) continue;
      of_rank->matrices += (double)tensor_ranks / weight->split_count / updated_by;
      of_rank->split_bytes += (double)weight->count * sizeof(float) / updated_by;
    }
  }
  return elements;
}

/* The exchanges of UPDATE: each tensor rank sends what it has of the matrices of the others, and
 * gets it back. */
static double exchange_time(const struct rank_elements *of, uint32_t tensor_ranks,
                            const struct pen_byte_cost *byte) {
  const double pairs = ceil(of->matrices / tensor_ranks);
  return pairs > 0 ? 2 * pairs *
                         pen_exchange_cost(
                             tensor_ranks,
                             of->split_bytes * (tensor_ranks - 1) / tensor_ranks / pairs, byte)
                   : 0;
}

struct pen_step_time pen_step_time(const struct pen_cost_model *cost,
                                   const struct pen_partition *partition,
                                   const struct pen_order *order, const struct pen_timing *timing) {
  if (!cost->source.measured || !cost->topology->trains) return (struct pen_step_time){NAN, NAN};
  struct rank_elements *elements = elements_of(cost, partition);
  const struct pen_timing *whole = timing->whole ? timing->whole : timing;
  if (timing->whole) order = timing->whole_order;
  double flops = 0, matrices = 0;
  for (uint32_t rank = 0; rank < partition->rank_count; rank++) {
    flops += elements[rank].flops;
    matrices += elements[rank].matrices;
  }
  const double flop = flops > 0 ? time_of_flop(cost, partition) : 0;
  struct pen_byte_cost byte = {0};
  if (matrices > 0) byte = pen_byte_cost_of(cost->topology, partition, cost->graph, cost->alone);
  const uint32_t tensor_ranks = pen_group_size(partition, PEN_TENSOR);
  double normed = timing->makespan, longest = 0, sum = 0;
  for (uint32_t rank = 0; rank < partition->rank_count; rank++) {
    const uint32_t count = order->count[rank];
    const double norm = cost->norm_element * (double)elements[rank].normed,
                 update = cost->update_element * (double)elements[rank].updated +
                          flop * elements[rank].flops +
                          exchange_time(&elements[rank], tensor_ranks, &byte);
    normed = fmax(normed, (count ? whole->end[rank][count - 1] : 0) + norm);
    longest = fmax(longest, update);
    sum += norm + update;
  }
  pen_free(elements);
  return (struct pen_step_time){normed + longest, sum / partition->rank_count};
}
