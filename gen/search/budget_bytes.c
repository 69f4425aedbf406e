/* budget_bytes.c: the memory budget of a topology; for memory.limit_mib in bytes, estimated from
 * the buffers of each stage.
 *
 * The temporaries of a program count while it runs. Weights that replicas shard
 * (data_parallel.shard) are unsharded while they are used: in the whole step, or while an action of
 * their stage runs (data_parallel.reshard). */
#include "gen/search/budget_bytes.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/layout/audit.h"
#include "gen/layout/persistent.h"
#include "gen/layout/stage_buffers.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static double boundary_bytes(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE ? 0 : (double)pen_aligned(pen_value_bytes_passed(graph, value));
}

/* What all stages of a rank use in turn: the gradients of one microbatch, and the slots of the
 * tensor ranks' exchanges, two sets with one for each. */
struct shared_bytes {
  double partial, slots;
};

/* Sets what the programs of a stage hold in bytes, with the messages that it receives and those
 * that it sends, and what it needs of the shared bytes. Returns the bytes of its weights that
 * UNSHARD gathers. */
static double hold_bytes(const struct pen_partition *partition, const struct pen_graph *graph,
                         struct pen_hold hold[PEN_PROGRAMS], struct shared_bytes *shared) {
  struct pen_stage_buffers blocks =
      pen_stage_buffers_of(partition, graph, &(struct pen_buffer_split){.kind = PEN_SPLIT_NONE});
  double come[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = boundary_bytes(graph, graph->input),
                               [PEN_PROGRAM_I] = boundary_bytes(graph, graph->output_gradient)};
  double gone[PEN_PROGRAMS] = {0};
  if (blocks.output_last <= PEN_PROGRAM_F)
    gone[PEN_PROGRAM_F] = boundary_bytes(graph, graph->output);
  if (blocks.input_gradient_last <= PEN_PROGRAM_I)
    gone[PEN_PROGRAM_I] = boundary_bytes(graph, graph->input_gradient);
  come[PEN_PROGRAM_B] = come[PEN_PROGRAM_I];
  gone[PEN_PROGRAM_B] = gone[PEN_PROGRAM_I];
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    double remains = come[p] + (double)blocks.remains[p];
    hold[p] = (struct pen_hold){fmax(0, fmax(come[p] + (double)blocks.peak[p], remains)),
                                remains - gone[p]};
  }
  shared->partial = (double)blocks.bytes[PEN_BASE_PARTIAL];
  shared->slots =
      2 * (double)graph->topology->tensor_parallel_ranks * (double)blocks.bytes[PEN_BASE_EXCHANGE];
  return (double)blocks.bytes[PEN_BASE_UNSHARDED];
}

static double resident_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                             uint32_t rank) {
  double bytes = (double)pen_audit_bytes(partition, graph, rank, NULL);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    if (partition->rank_of[stage] == rank)
      bytes += (double)pen_stage_resident_bytes(partition, graph[stage]);
  return bytes;
}

static struct pen_budget *budget_in_bytes(const struct pen_topology *t,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          struct pen_graph *const *graph, const double *slack) {
  struct pen_budget *budget = pen_budget_none(partition->rank_count, partition->stage_count);
  budget->limited = budget->estimated = true;
  struct shared_bytes *most = pen_new(partition->rank_count, sizeof *most);
  budget->whole = pen_new(partition->stage_count, sizeof *budget->whole);
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    budget->limit[rank] = (double)t->memory_limit_mib * 1048576.0 -
                          resident_bytes(partition, graph, rank) - (slack ? slack[rank] : 0);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    struct shared_bytes shared, *of_rank = &most[partition->rank_of[stage]];
    double unsharded = hold_bytes(partition, graph[stage], budget->hold[stage], &shared);
    of_rank->partial = fmax(of_rank->partial, shared.partial);
    of_rank->slots = fmax(of_rank->slots, shared.slots);
    if (!training->reshards_each_use) budget->limit[partition->rank_of[stage]] -= unsharded;
    for (int p = 0; p < PEN_PROGRAMS && training->reshards_each_use; p++)
      budget->hold[stage][p].peak += unsharded;
    budget->whole[stage] = training->reshards_each_use ? unsharded : 0;
  }
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    budget->limit[rank] -= most[rank].partial + most[rank].slots;
  pen_free(most);
  return budget;
}

struct pen_budget *pen_budget_of(const struct pen_topology *t,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack) {
  if (!t->has_pipeline_live_limit && !t->memory_limit_mib)
    return pen_budget_none(partition->rank_count, partition->stage_count);
  if (!t->has_pipeline_live_limit) return budget_in_bytes(t, partition, training, graph, slack);
  double *weight = pen_new(partition->stage_count, sizeof *weight);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    struct pen_hold hold[PEN_PROGRAMS] = {{0, 0}};
    weight[stage] = t->costs_live_weight;
    if (t->has_costs_live_weight) continue;
    struct shared_bytes shared;
    hold_bytes(partition, graph[stage], hold, &shared);
    double backward = hold[PEN_PROGRAM_F].remains, left = backward + hold[PEN_PROGRAM_I].remains;
    weight[stage] = backward > 0 ? t->costs_live_backward * fmax(0, left) / backward : 0;
  }
  return pen_budget_live(partition->rank_count, partition->stage_count, t->pipeline_live_limit,
                         t->costs_live_backward, weight);
}
