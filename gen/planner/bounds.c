/* bounds.c: what no candidate of a pipeline can beat, in time and in memory.
 *
 * A candidate may be left out if a bound shows that it cannot be among the best, so each bound must
 * be proved. Of the makespan:
 *
 *   pipeline    A rank runs all F, I and W of its stages. Before them, the forwards of all stages
 *               before its lowest run on other ranks. If the backward is not split, all backwards
 *               of stages before its lowest run after its last action, which is a B: all work of
 *               the rank is before that. Recomputation adds to I. Where it changes the cut, the
 *               busiest rank still has at least the average of all ranks' work.
 *   alone       The order without replicas. Collectives are further elements of the lists of ranks,
 *               and those within programs lengthen these. A simulated step is a longest path
 *               through lists and messages, which neither can shorten.
 *   exchange    A rank runs its collectives beside its work. Of a collective, all n members
 *               together send each byte of a tensor n - 1 times; the slowest takes at least the
 *               average. With C the least sum of the costs of a byte from one member to each of the
 *               others, that is the tensor's bytes x C / n.
 *
 * Of a rank's arena: what persists, by gen/layout/persistent.h, and the activations that are live
 * at one action (struct pen_stage_buffers; without messages, gathered weights and partial
 * gradients).
 */
#include "gen/planner/bounds.h"

#include <math.h>

#include "gen/base/arena.h"
#include "gen/layout/persistent.h"
#include "gen/layout/stage_buffers.h"
#include "gen/timing/collective_cost.h"

/* ---- pipelines ---- */

void pen_cut_costs_of(const struct pen_trial *trial, struct pen_cut_costs *cut) {
  cut->valid = true;
  cut->stage_count = trial->partition->stage_count;
  cut->has_overlap = trial->cost.overlap >= 0;
  const struct pen_stage_cost *cost = pen_kernel_costs(trial->partition, trial->cost.stage);
  for (uint32_t s = 0; s < cut->stage_count; s++) {
    cut->forward[s] = cost[s].forward;
    cut->backward[s] = pen_backward_cost(&cost[s]);
  }
}

double pen_pipeline_bound(const struct pen_cut_costs *cut, uint32_t ranks, uint32_t microbatches,
                          bool zigzag, bool splits, bool exact) {
  double all = 0, most = 0, head = 0, tail = 0;
  if (cut->has_overlap) return 0;
  for (uint32_t s = 0; s < cut->stage_count; s++) all += cut->forward[s] + cut->backward[s];
  if (!exact) return all * microbatches / ranks;
  for (uint32_t r = 0; r < ranks; r++) {
    double work = 0;
    for (uint32_t turn = 0; turn * ranks < cut->stage_count; turn++) {
      uint32_t s = turn * ranks + (zigzag && turn % 2 ? ranks - 1 - r : r);
      work += cut->forward[s] + cut->backward[s];
    }
    most = fmax(most, head + microbatches * work + (splits ? 0 : tail));
    head += cut->forward[r];
    tail += cut->backward[r];
  }
  return most;
}

/* ---- collectives ---- */

/* The least over members d, d + step, ... of the cost of a byte to each of the other members. */
static double least_cost(const struct pen_partition *p, struct pen_byte_cost byte, uint32_t rank,
                         uint32_t step, uint32_t count) {
  double least = INFINITY;
  for (uint32_t d = 0; d < count; d++) {
    double sum = 0;
    for (uint32_t e = 0; e < count; e++) {
      const bool same = !p->host_of || p->host_of[d * step * p->rank_count + rank] ==
                                           p->host_of[e * step * p->rank_count + rank];
      if (e != d) sum += same ? byte.within : byte.between;
    }
    least = fmin(least, sum);
  }
  return least;
}

/* The least time of a rank's collectives that are actions, for each trained element of its stages.
 */
static double exchange_of_element(const struct pen_trial *trial, const struct pen_partition *p,
                                  struct pen_byte_cost byte, uint32_t rank) {
  const uint32_t shards = p->shard_ranks, groups = p->replica_count / shards;
  const double gradient = sizeof(float),
               value = trial->graph[0]->dtype == PEN_BF16 ? sizeof(uint16_t) : sizeof(float),
               cost = least_cost(p, byte, rank, 1, shards) / shards;
  double sum = 0;
  if (!p->reduces_microbatches) sum += gradient * cost;
  if (p->sharding == PEN_SHARD_NONE) sum += gradient * cost;
  if (p->sharding == PEN_SHARD_OPTIMIZER || p->sharding == PEN_SHARD_GRADIENTS) sum += value * cost;
  if (p->sharding == PEN_SHARD_WEIGHTS && !p->gathers_units &&
      !trial->topology->model_tie_embeddings)
    sum += value * cost;
  if (groups > 1) sum += 2 * gradient * least_cost(p, byte, rank, shards, groups) / groups / shards;
  return sum;
}

/* [rank]: trained elements of its stages. */
static double *trained_elements(const struct pen_trial *trial) {
  double *elements = pen_new(trial->partition->rank_count, sizeof *elements);
  for (uint32_t s = 0; s < trial->partition->stage_count; s++) {
    const struct pen_graph *graph = trial->graph[s];
    for (uint32_t w = 0; w < graph->weight_count; w++)
      if (!graph->weight[w].frozen && w != graph->tied)
        elements[trial->partition->rank_of[s]] += (double)graph->weight[w].count;
  }
  return elements;
}

/* ---- memory ---- */

/* [rank]: the most bytes of activations that are live at one action. */
static uint64_t *live_bytes(const struct pen_trial *trial) {
  const struct pen_order *order = trial->order;
  const uint32_t stages = trial->partition->stage_count;
  uint64_t *most = pen_new(order->rank_count, sizeof *most);
  struct pen_stage_buffers *buffers = pen_new(stages, sizeof *buffers);
  for (uint32_t s = 0; s < stages; s++)
    buffers[s] = pen_stage_buffers_of(trial->partition, trial->graph[s],
                                      &(struct pen_buffer_split){.kind = PEN_SPLIT_NONE});
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    int64_t held = 0;
    for (uint32_t i = 0; i < order->count[rank]; i++) {
      const struct pen_compute *action = &order->action[rank][i];
      const int program = pen_program_of(action->kind);
      const struct pen_stage_buffers *own = &buffers[action->stage];
      if (held + own->peak[program] > (int64_t)most[rank])
        most[rank] = (uint64_t)(held + own->peak[program]);
      held += own->remains[program];
    }
  }
  return most;
}

static uint64_t most_bytes(const struct pen_trial *trial, const struct pen_partition *p,
                           const uint64_t *live, uint64_t *resident) {
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < p->rank_count; rank++) resident[rank] = 0;
  for (uint32_t s = 0; s < p->stage_count; s++)
    resident[p->rank_of[s]] += pen_stage_resident_bytes(p, trial->graph[s]);
  for (uint32_t rank = 0; rank < p->rank_count; rank++)
    if (resident[rank] + live[rank] > most) most = resident[rank] + live[rank];
  return most;
}

/* ---- candidates ---- */

void pen_candidate_bounds_of(const struct pen_trial *trial, const struct pen_replica_terms *terms,
                             size_t count, struct pen_candidate_bounds *bounds) {
  const struct pen_topology *t = trial->topology;
  const struct pen_timing *alone =
      pen_simulate(trial->order, trial->partition, trial->training,
                   pen_kernel_costs(trial->partition, trial->cost.stage), trial->cost.overlap);
  const uint64_t *live = live_bytes(trial);
  const double *elements = trained_elements(trial);
  const bool given = t->costs_reduce.count || t->costs_gather.count;
  const struct pen_byte_cost byte =
      pen_byte_cost_of(t, trial->partition, trial->graph, trial->cost.stage);
  uint64_t *resident = pen_new(trial->partition->rank_count, sizeof *resident);
  for (size_t i = 0; i < count; i++) {
    struct pen_partition partition = *trial->partition;
    partition.sharding = terms[i].sharding;
    partition.shard_ranks = terms[i].shard_ranks;
    partition.gathers_units = terms[i].gathers_units;
    partition.reduces_microbatches = terms[i].reduces_microbatches;
    partition.host_of = terms[i].host_of;
    bounds->makespan[i] = alone->makespan;
    for (uint32_t rank = 0; rank < partition.rank_count && !given; rank++)
      if (partition.replica_count > 1)
        bounds->makespan[i] =
            fmax(bounds->makespan[i],
                 alone->busy[rank] +
                     elements[rank] * exchange_of_element(trial, &partition, byte, rank));
    bounds->arena_bytes[i] = most_bytes(trial, &partition, live, resident);
  }
}
