/* collectives.c: places the collectives of the replicas in the lists of the ranks
 * (data_parallel.replicas).
 *
 * GRAD_READY signals that a stage's gradient is complete. It costs nothing and never blocks, so it
 * comes directly after the last action that adds to the gradient. REDUCE_SCATTER sums a replica's
 * shard, ALL_GATHER_GRAD copies the shards of the others; meanwhile the rank does nothing else. If
 * the moments are sharded, no replica needs the whole gradient: ALL_GATHER_WEIGHT, directly after
 * UPDATE, replaces ALL_GATHER_GRAD. If weights are sharded too, UNSHARD all-gathers them before
 * they are used, and RESHARD frees that copy; W uses weights only if it recomputes the logits
 * (model/fused_loss.c).
 *
 * REDUCE_SCATTER and ALL_GATHER_GRAD go into idle times of the simulated rank after the gradient is
 * complete. The best place depends on their costs, hence three rules, of which replica_step.c takes
 * the one with the shortest step:
 *
 *   FITTING   the first idle time with room for all of the collective, where it is hidden; else
 *             after all actions
 *   FIRST     the first idle time, whatever its length: the other ranks may have time to spare
 *   LAST      after all actions
 *
 * All REDUCE_SCATTER come before all ALL_GATHER_GRAD, and stages with an earlier complete gradient
 * before others. The gradient of a tied weight, and so that of its stage, is complete after
 * ADD_TIED_GRAD, which comes after all compute actions.
 *
 * Collectives add no deadlock. All replicas run the same lists, and what a collective waits for is
 * earlier in its own list, hence in those of its peers: if all replicas run in lockstep, in an
 * order in which a single replica completes, every wait is satisfied. DDP (Li et al. 2020) overlaps
 * the reduction by buckets; here a bucket is a stage. */
#include <stdlib.h>

#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/collectives.h"
#include "runtime/plan/plan.h"

enum { KINDS_MAX = 5 };

/* A collective that is to be placed. */
struct placement {
  struct pen_placed_collective
      collective;                /* `before`: the last possible place until it is placed */
  uint32_t ready;                /* the first possible place */
  const struct placement *needs; /* it must also follow this one; NULL: none */
  double cost;
  bool placed;
};

static bool adds_to_gradient(const struct pen_compute *action) {
  return action->kind == PEN_B || action->kind == PEN_W;
}

/* A stage's gradient: before which compute action of its rank it is complete. */
struct gradient {
  uint32_t stage, complete;
};

/* By the time at which the gradient is complete, then by stage. */
static int compare_gradients(const void *a, const void *b) {
  const struct gradient *x = a, *y = b;
  if (x->complete != y->complete) return x->complete < y->complete ? -1 : 1;
  return (x->stage > y->stage) - (x->stage < y->stage);
}

/* The gradients of a rank's stages, sorted. `complete` is after a pair, not within it. */
static struct gradient *gradients_of(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_training *training, uint32_t rank,
                                     size_t *count) {
  struct gradient *gradient = pen_new(partition->stage_count, sizeof *gradient);
  uint32_t *place = pen_new(partition->stage_count, sizeof *place);
  *count = 0;
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    if (partition->rank_of[stage] != rank) continue;
    place[stage] = (uint32_t)*count;
    gradient[(*count)++] = (struct gradient){stage, 0};
  }
  for (uint32_t index = 0; index < order->count[rank]; index++) {
    const struct pen_compute *action = &order->action[rank][index];
    if (adds_to_gradient(action))
      gradient[place[action->stage]].complete = index + (action->overlaps ? 2 : 1);
  }
  for (size_t i = 0; i < *count && training->adds_tied_gradient; i++)
    if (gradient[i].stage == 0) gradient[i].complete = PEN_AFTER_TIED_GRAD;
  qsort(gradient, *count, sizeof *gradient, compare_gradients);
  return gradient;
}

/* Whether an action reads weights of its stage. */
static bool reads_weights(const struct pen_training *training, const struct pen_compute *action) {
  return action->kind != PEN_W || (training->weights_in_w && training->weights_in_w[action->stage]);
}

/* Whether the action at `index`, or the other of its pair, reads the weights of `stage`; with
 * `another`, of any other stage. */
static bool uses_weights(const struct pen_order *order, const struct pen_training *training,
                         uint32_t rank, uint32_t index, uint32_t stage, bool another) {
  const struct pen_compute *action = &order->action[rank][index];
  bool any = reads_weights(training, action) && (action->stage == stage) != another;
  return any || (action->overlaps && reads_weights(training, &action[1]) &&
                 (action[1].stage == stage) != another);
}

/* Adds the UNSHARD, or RESHARD, of each stage of a rank: before its first use and after its last,
 * or around each sequence of uses between which the rank uses no other stage. Both of a pair use
 * their weights at once. */
static void add_unshards(const struct pen_order *order, const struct pen_partition *partition,
                         const struct pen_training *training, uint32_t rank, uint8_t kind,
                         struct placement *placement, size_t *count) {
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    bool unsharded = false;
    uint32_t past = 0;
    if (partition->rank_of[stage] != rank) continue;
    for (uint32_t index = 0; index < order->count[rank];
         index += order->action[rank][index].overlaps ? 2 : 1) {
      bool used = uses_weights(order, training, rank, index, stage, false);
      bool ends = unsharded && !used && training->reshards_each_use &&
                  uses_weights(order, training, rank, index, stage, true);
      if (ends && kind == PEN_RESHARD)
        placement[(*count)++] = (struct placement){{past, kind, (uint16_t)stage}, 0, NULL, 0, true};
      if (used && !unsharded && kind == PEN_UNSHARD)
        placement[(*count)++] =
            (struct placement){{index, kind, (uint16_t)stage}, 0, NULL, 0, true};
      unsharded = (unsharded && !ends) || used;
      if (used) past = index + (order->action[rank][index].overlaps ? 2 : 1);
    }
    if (unsharded && kind == PEN_RESHARD)
      placement[(*count)++] = (struct placement){{past, kind, (uint16_t)stage}, 0, NULL, 0, true};
  }
}

/* Whether UNSHARD gathers the weights of a stage. */
static bool unshards_stages(const struct pen_partition *partition) {
  return partition->sharding == PEN_SHARD_WEIGHTS && !partition->gathers_units;
}

static uint8_t gather_kind(const struct pen_partition *partition) {
  return partition->sharding == PEN_SHARD_NONE ? PEN_ALL_GATHER_GRAD : PEN_ALL_GATHER_WEIGHT;
}

/* Whether a stage gathers after its reduction: of sharded weights UNSHARD gathers all but a tied
 * one. */
static bool gathers(const struct pen_partition *partition, const struct pen_training *training,
                    uint32_t stage) {
  return partition->sharding != PEN_SHARD_WEIGHTS || (training->adds_tied_gradient && stage == 0);
}

/* The kinds of the collectives of a stage's gradients, in order. With data_parallel.reduce =
 * "microbatch" the programs have summed them. */
static size_t kinds_of(const struct pen_partition *partition, uint8_t kinds[KINDS_MAX]) {
  size_t count = 0;
  bool has_groups = pen_group_size(partition, PEN_SAME_SHARD) > 1;
  if (!partition->reduces_microbatches || partition->sharding == PEN_SHARD_NONE || has_groups)
    kinds[count++] = PEN_GRAD_READY;
  if (!partition->reduces_microbatches) kinds[count++] = PEN_REDUCE_SCATTER;
  if (has_groups) kinds[count++] = PEN_REDUCE_GROUPS;
  if (has_groups) kinds[count++] = PEN_GATHER_GROUPS;
  kinds[count++] = gather_kind(partition);
  return count;
}

/* The collectives of a rank, by kind; those of a kind in the order of the gradients. */
static struct placement *placements_of(const struct pen_order *order,
                                       const struct pen_partition *partition,
                                       const struct pen_training *training, uint32_t rank,
                                       const struct pen_collective_cost *cost, int profile_kind,
                                       size_t *count) {
  uint8_t kinds[KINDS_MAX];
  size_t gradients, kind_count = kinds_of(partition, kinds);
  struct gradient *gradient = gradients_of(order, partition, training, rank, &gradients);
  bool unshards = unshards_stages(partition);
  struct placement *placement =
      pen_new(kind_count * gradients + (unshards ? 4 * ((size_t)order->count[rank] + 1) : 0) + 1,
              sizeof *placement);
  *count = 0;
  if (unshards) add_unshards(order, partition, training, rank, PEN_RESHARD, placement, count);
  if (unshards) add_unshards(order, partition, training, rank, PEN_UNSHARD, placement, count);
  if (profile_kind != PEN_TRAIN) return placement;
  for (size_t kind = 0; kind < kind_count; kind++)
    for (size_t i = 0; i < gradients; i++) {
      const struct gradient *g = &gradient[i];
      if (kinds[kind] == gather_kind(partition) && !gathers(partition, training, g->stage))
        continue;
      uint32_t last = g->complete > order->count[rank] ? g->complete : order->count[rank];
      bool moves = kinds[kind] >= PEN_REDUCE_SCATTER && kinds[kind] <= PEN_ALL_GATHER_GRAD;
      if (kinds[kind] == PEN_ALL_GATHER_WEIGHT) last = PEN_AFTER_UPDATE;
      placement[*count] = (struct placement){
          {kinds[kind] == PEN_GRAD_READY ? g->complete : last, kinds[kind], (uint16_t)g->stage},
          g->complete,
          NULL,
          0,
          !moves};
      if (moves && cost)
        placement[*count].cost = pen_collective_cost_of(cost, g->stage, kinds[kind]);
      if (moves) placement[*count].needs = &placement[*count - gradients];
      (*count)++;
    }
  return placement;
}

/* Places collectives in the idle times before actions; `fitting`: only those that fit. */
static void fill_idle_times(struct placement *placement, size_t count, const double *start,
                            const double *end, uint32_t actions, bool fitting) {
  for (uint32_t index = 1; index < actions; index++) {
    double room = start[index] - end[index - 1];
    if (!(room > 0)) continue;
    for (size_t i = 0; i < count; i++) {
      struct placement *p = &placement[i];
      bool ready = !p->placed && p->ready <= index &&
                   (!p->needs || (p->needs->placed && p->needs->collective.before <= index));
      if (!ready || (fitting && p->cost > room)) continue;
      p->collective.before = index;
      p->placed = true;
      room -= p->cost;
    }
  }
}

static int compare_places(const void *a, const void *b) {
  const struct placement *x = a, *y = b;
  if (x->collective.before != y->collective.before)
    return x->collective.before < y->collective.before ? -1 : 1;
  return (x->ready > y->ready) - (x->ready < y->ready); /* set by sort_by_place(): a stable sort */
}

/* Sorts by place; those of one place stay in order. */
static struct pen_placed_collective *sort_by_place(const struct placement *placement,
                                                   size_t count) {
  struct placement *sorted = pen_new(count + 1, sizeof *sorted);
  struct pen_placed_collective *list = pen_new(count + 1, sizeof *list);
  for (size_t i = 0; i < count; i++) {
    sorted[i] = placement[i];
    sorted[i].ready = (uint32_t)i;
  }
  qsort(sorted, count, sizeof *sorted, compare_places);
  for (size_t i = 0; i < count; i++) list[i] = sorted[i].collective;
  pen_free(sorted);
  return list;
}

static bool has_collectives(const struct pen_partition *partition, int profile_kind) {
  return pen_group_size(partition, PEN_DATA) > 1 &&
         (profile_kind == PEN_TRAIN || unshards_stages(partition));
}

struct pen_collectives *pen_collectives_of(const struct pen_order *order,
                                           const struct pen_partition *partition,
                                           const struct pen_training *training,
                                           const struct pen_timing *timing,
                                           const struct pen_collective_cost *cost,
                                           enum pen_collectives_rule rule, int profile_kind) {
  if (!has_collectives(partition, profile_kind)) return NULL;
  struct pen_collectives *collectives = pen_new(1, sizeof *collectives);
  collectives->count = pen_new(order->rank_count, sizeof *collectives->count);
  collectives->collective = pen_new(order->rank_count, sizeof *collectives->collective);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    size_t count;
    struct placement *placement =
        placements_of(order, partition, training, rank, cost, profile_kind, &count);
    if (rule != PEN_COLLECTIVES_LAST)
      fill_idle_times(placement, count, timing->start[rank], timing->end[rank], order->count[rank],
                      rule == PEN_COLLECTIVES_FITTING);
    collectives->collective[rank] = sort_by_place(placement, count);
    collectives->count[rank] = (uint32_t)count;
  }
  return collectives;
}

struct pen_exchange_least *pen_exchange_least(const struct pen_partition *partition,
                                              const struct pen_training *training,
                                              const struct pen_collective_cost *cost,
                                              int profile_kind) {
  if (!cost || !has_collectives(partition, profile_kind)) return NULL;
  struct pen_exchange_least *least = pen_new(partition->stage_count, sizeof *least);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    if (unshards_stages(partition))
      least[stage].before = pen_collective_cost_of(cost, stage, PEN_UNSHARD);
    if (profile_kind != PEN_TRAIN) continue;
    if (!partition->reduces_microbatches)
      least[stage].after = pen_collective_cost_of(cost, stage, PEN_REDUCE_SCATTER);
    if (pen_group_size(partition, PEN_SAME_SHARD) > 1)
      least[stage].after += pen_collective_cost_of(cost, stage, PEN_REDUCE_GROUPS) +
                            pen_collective_cost_of(cost, stage, PEN_GATHER_GROUPS);
    if (gathers(partition, training, stage))
      least[stage].after += pen_collective_cost_of(cost, stage, gather_kind(partition));
  }
  return least;
}
