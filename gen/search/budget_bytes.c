/* budget_bytes.c: the memory budget of a topology; for memory.limit_mib in bytes, estimated from
 * the buffers of each stage.
 *
 * The temporaries of a program count while it runs. Weights that replicas shard
 * (data_parallel.shard) are unsharded while they are used: in the whole step, or while an action of
 * their stage runs (data_parallel.reshard). */
#include "gen/search/budget_bytes.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/layout/audit.h"
#include "gen/layout/muon.h"
#include "gen/layout/persistent.h"
#include "gen/layout/stage_buffers.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

static double boundary_bytes(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE ? 0 : (double)pen_aligned(pen_value_bytes_passed(graph, value));
}

/* A message that a program makes is counted as long as it runs. */
static double sent_bytes(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE || graph->value[value].storage != value ? 0
                                                                   : boundary_bytes(graph, value);
}

void pen_stage_least_of(const struct pen_graph *graph, struct pen_hold least[PEN_PROGRAMS]) {
  const struct pen_stage_buffers buffers = pen_stage_live_of(graph);
  const double gradient = boundary_bytes(graph, graph->output_gradient),
               sent_back = sent_bytes(graph, graph->input_gradient);
  const double come[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = boundary_bytes(graph, graph->input),
                                     [PEN_PROGRAM_I] = gradient,
                                     [PEN_PROGRAM_B] = gradient},
               gone[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = sent_bytes(graph, graph->output),
                                     [PEN_PROGRAM_I] = sent_back,
                                     [PEN_PROGRAM_B] = sent_back};
  for (int p = 0; p < PEN_PROGRAMS; p++)
    least[p] = (struct pen_hold){come[p] + (double)buffers.peak[p],
                                 come[p] + (double)buffers.remains[p] - gone[p]};
}

struct pen_stage_hold pen_stage_hold_of(const struct pen_partition *partition,
                                        const struct pen_graph *graph) {
  const struct pen_stage_buffers buffers =
      pen_stage_buffers_of(partition, graph, &(struct pen_buffer_split){.kind = PEN_SPLIT_NONE});
  double come[PEN_PROGRAMS] = {[PEN_PROGRAM_F] = boundary_bytes(graph, graph->input),
                               [PEN_PROGRAM_I] = boundary_bytes(graph, graph->output_gradient)};
  double gone[PEN_PROGRAMS] = {0};
  if (buffers.output_last <= PEN_PROGRAM_F)
    gone[PEN_PROGRAM_F] = boundary_bytes(graph, graph->output);
  if (buffers.input_gradient_last <= PEN_PROGRAM_I)
    gone[PEN_PROGRAM_I] = boundary_bytes(graph, graph->input_gradient);
  come[PEN_PROGRAM_B] = come[PEN_PROGRAM_I];
  gone[PEN_PROGRAM_B] = gone[PEN_PROGRAM_I];
  struct pen_stage_hold hold = {.unsharded = (double)buffers.bytes[PEN_BASE_UNSHARDED],
                                .partial = (double)buffers.bytes[PEN_BASE_PARTIAL],
                                .slots = 2 * (double)graph->topology->tensor_parallel_ranks *
                                         (double)buffers.bytes[PEN_BASE_EXCHANGE]};
  for (int p = 0; p < PEN_PROGRAMS; p++) {
    const double remains = come[p] + (double)buffers.remains[p];
    hold.hold[p] = (struct pen_hold){fmax(0, fmax(come[p] + (double)buffers.peak[p], remains)),
                                     remains - gone[p]};
  }
  pen_stage_least_of(graph, hold.least);
  pen_free(buffers.offset);
  pen_free(buffers.base);
  return hold;
}

double pen_resident_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                          uint32_t rank) {
  double bytes = (double)(pen_audit_bytes(partition, graph, rank, NULL) +
                          pen_aligned(pen_muon_bytes(partition, graph, rank)));
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    if (partition->rank_of[stage] == rank)
      bytes += (double)pen_stage_resident_bytes(partition, graph[stage]);
  return bytes;
}

/* What all stages of a rank use in turn (struct pen_stage_hold). */
struct shared_bytes {
  double partial, slots;
};

static struct pen_budget *budget_in_bytes(const struct pen_topology *t,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          struct pen_graph *const *graph,
                                          const struct pen_stage_hold *of, const double *slack) {
  struct pen_budget *budget = pen_budget_none(partition->rank_count, partition->stage_count);
  budget->limited = budget->estimated = true;
  struct shared_bytes *most = pen_new(partition->rank_count, sizeof *most);
  budget->whole = pen_new(partition->stage_count, sizeof *budget->whole);
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    budget->limit[rank] = (double)t->memory_limit_mib * 1048576.0 -
                          pen_resident_bytes(partition, graph, rank) - (slack ? slack[rank] : 0);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    const double unsharded = of[stage].unsharded;
    struct shared_bytes *of_rank = &most[partition->rank_of[stage]];
    memcpy(budget->hold[stage], of[stage].hold, sizeof of[stage].hold);
    of_rank->partial = fmax(of_rank->partial, of[stage].partial);
    of_rank->slots = fmax(of_rank->slots, of[stage].slots);
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

static bool is_unlimited(const struct pen_topology *t) {
  return !t->has_pipeline_live_limit && !t->memory_limit_mib;
}

struct pen_budget *pen_budget_of(const struct pen_topology *t,
                                 const struct pen_partition *partition,
                                 const struct pen_training *training,
                                 struct pen_graph *const *graph, const double *slack) {
  const bool needs = !is_unlimited(t) && !(t->has_pipeline_live_limit && t->has_costs_live_weight);
  struct pen_stage_hold *hold = needs ? pen_new(partition->stage_count, sizeof *hold) : NULL;
  for (uint32_t stage = 0; needs && stage < partition->stage_count; stage++)
    hold[stage] = pen_stage_hold_of(partition, graph[stage]);
  struct pen_budget *budget = pen_budget_of_holds(t, partition, training, graph, hold, slack);
  pen_free(hold);
  return budget;
}

struct pen_budget *pen_budget_of_holds(const struct pen_topology *t,
                                       const struct pen_partition *partition,
                                       const struct pen_training *training,
                                       struct pen_graph *const *graph,
                                       const struct pen_stage_hold *of, const double *slack) {
  if (is_unlimited(t)) return pen_budget_none(partition->rank_count, partition->stage_count);
  if (!t->has_pipeline_live_limit) return budget_in_bytes(t, partition, training, graph, of, slack);
  double *weight = pen_new(partition->stage_count, sizeof *weight);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    weight[stage] = t->costs_live_weight;
    if (t->has_costs_live_weight) continue;
    const struct pen_hold *hold = of[stage].hold;
    double backward = hold[PEN_PROGRAM_F].remains, left = backward + hold[PEN_PROGRAM_I].remains;
    weight[stage] = backward > 0 ? t->costs_live_backward * fmax(0, left) / backward : 0;
  }
  return pen_budget_live(partition->rank_count, partition->stage_count, t->pipeline_live_limit,
                         t->costs_live_backward, weight);
}
