/* gradient_exchange.c: where the rows stand by which the replicas of a stage come to one gradient
 * (data_parallel.replicas).
 *
 * GRAD_READY says that a stage's gradient is whole. It costs nothing and never blocks, so it stands
 * right behind the last action that adds to the gradient: the others can then go on. REDUCE_SCATTER
 * adds up the own shards, ALL_GATHER_GRAD copies those of the others; their rank does nothing else
 * meanwhile. Where the moments are cut over the replicas nobody wants the others' gradients: in
 * place of ALL_GATHER_GRAD, ALL_GATHER_WEIGHT brings the others' weights, right behind UPDATE.
 * Where weights are cut too, UNSHARD brings them together where they are used, and RESHARD gives up
 * their place; a W uses them only where it makes the logits again (late_loss.c). The rows before
 * UPDATE are put into the pauses that the simulated rank makes anyway after that, at the end of its
 * backward. Where they stand best depends on what they take, hence three rules, of which
 * step_timing.c takes the one that makes the shortest step:
 *
 *   FITTING  in the first pause that still has room for all of it: what is done there is hidden.
 * What fits nowhere comes last FIRST    in the first pause, whatever its length: the rest of the
 * pipeline may have time to spare LAST     behind all actions
 *
 * All sums come before all copies, and stages whose gradients are whole earlier before others. The
 * gradient of a tied matrix is whole behind ADD_TIED_GRAD, which stands behind all compute actions;
 * so is then its stage's.
 *
 * All replicas run the same lists. Whatever a row waits for stands further up in its own list,
 * hence in its peers': let all replicas run in step along an order in which one replica alone comes
 * to its end, and every row finds what it waits for. So replicas add no deadlock. DDP (Li et al.
 * 2020) overlaps bucket by bucket; a bucket is a stage here. */
#include <stdlib.h>

#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "runtime/plan/plan.h"

/* A row, with what it takes and what must stand above it. */
struct task {
  struct pen_collective row; /* `before` is found; until then the last place */
  uint32_t ready;            /* it may stand before this action, or a later one */
  const struct task *needs;  /* and behind that row; null: none */
  double cost;
  bool placed;
};

static bool adds(const struct pen_compute *action) {
  return action->kind == PEN_B || action->kind == PEN_W;
}

/* A stage's gradient on its rank: before which compute action it is whole. */
struct gradient {
  uint32_t stage, whole;
};

/* Orders by when the gradient is whole, then by stage. */
static int compare_gradients(const void *a, const void *b) {
  const struct gradient *x = a, *y = b;
  if (x->whole != y->whole) return x->whole < y->whole ? -1 : 1;
  return (x->stage > y->stage) - (x->stage < y->stage);
}

/* The gradients of a rank's stages, by when they are whole: before the first action behind the last
 * that adds, which is not the second of a pair. */
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
    if (adds(action)) gradient[place[action->stage]].whole = index + (action->overlaps ? 2 : 1);
  }
  for (size_t i = 0; i < *count && training->adds_tied_gradient; i++)
    if (gradient[i].stage == 0) gradient[i].whole = PEN_AFTER_TIED_GRAD;
  qsort(gradient, *count, sizeof *gradient, compare_gradients);
  return gradient;
}

/* Whether an action reads weights of its stage. */
static bool reads_weights(const struct pen_training *training, const struct pen_compute *action) {
  return action->kind != PEN_W || (training->weights_in_w && training->weights_in_w[action->stage]);
}

/* Whether an action, or the other of its pair, that starts at `index` reads the weights of a stage,
 * or of another. */
static bool uses(const struct pen_order *order, const struct pen_training *training, uint32_t rank,
                 uint32_t index, uint32_t stage, bool another) {
  const struct pen_compute *action = &order->action[rank][index];
  bool any = reads_weights(training, action) && (action->stage == stage) != another;
  return any || (action->overlaps && reads_weights(training, &action[1]) &&
                 (action[1].stage == stage) != another);
}

/* Where a stage's weights are brought together, or given up: before its first use and behind its
 * last one, or around each run of uses between which the rank uses no other stage. Both of a pair
 * use theirs at once. */
static void add_uses(const struct pen_order *order, const struct pen_partition *partition,
                     const struct pen_training *training, uint32_t rank, uint8_t kind,
                     struct task *task, size_t *count) {
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    bool whole = false;
    uint32_t past = 0;
    if (partition->rank_of[stage] != rank) continue;
    for (uint32_t index = 0; index < order->count[rank];
         index += order->action[rank][index].overlaps ? 2 : 1) {
      bool used = uses(order, training, rank, index, stage, false);
      bool ends = whole && !used && training->reshards_each_use &&
                  uses(order, training, rank, index, stage, true);
      if (ends && kind == PEN_RESHARD)
        task[(*count)++] = (struct task){{past, kind, (uint16_t)stage}, 0, NULL, 0, true};
      if (used && !whole && kind == PEN_UNSHARD)
        task[(*count)++] = (struct task){{index, kind, (uint16_t)stage}, 0, NULL, 0, true};
      whole = (whole && !ends) || used;
      if (used) past = index + (order->action[rank][index].overlaps ? 2 : 1);
    }
    if (whole && kind == PEN_RESHARD)
      task[(*count)++] = (struct task){{past, kind, (uint16_t)stage}, 0, NULL, 0, true};
  }
}

/* The rows of a rank, kind by kind; each kind in the order in which gradients are whole. */
static struct task *tasks_of(const struct pen_order *order, const struct pen_partition *partition,
                             const struct pen_training *training, uint32_t rank,
                             const struct pen_collective_cost *cost, int profile_kind,
                             size_t *count) {
  const uint8_t kinds[] = {
      PEN_GRAD_READY, PEN_REDUCE_SCATTER,
      partition->sharding == PEN_SHARD_NONE ? PEN_ALL_GATHER_GRAD : PEN_ALL_GATHER_WEIGHT};
  size_t gradients, kind_count = sizeof kinds;
  struct gradient *gradient = gradients_of(order, partition, training, rank, &gradients);
  bool cuts_weights = partition->sharding == PEN_SHARD_WEIGHTS;
  struct task *task = pen_new(
      kind_count * gradients + (cuts_weights ? 4 * ((size_t)order->count[rank] + 1) : 0) + 1,
      sizeof *task);
  *count = 0;
  if (cuts_weights) add_uses(order, partition, training, rank, PEN_RESHARD, task, count);
  if (cuts_weights) add_uses(order, partition, training, rank, PEN_UNSHARD, task, count);
  if (profile_kind != PEN_TRAIN) return task;
  for (size_t kind = 0; kind < kind_count; kind++)
    for (size_t i = 0; i < gradients; i++) {
      const struct gradient *g = &gradient[i];
      if (kinds[kind] == PEN_ALL_GATHER_WEIGHT && cuts_weights &&
          !(training->adds_tied_gradient && g->stage == 0))
        continue;
      uint32_t last = g->whole > order->count[rank] ? g->whole : order->count[rank];
      bool moves = kinds[kind] == PEN_REDUCE_SCATTER || kinds[kind] == PEN_ALL_GATHER_GRAD;
      if (kinds[kind] == PEN_ALL_GATHER_WEIGHT) last = PEN_AFTER_UPDATE;
      task[*count] = (struct task){
          {kinds[kind] == PEN_GRAD_READY ? g->whole : last, kinds[kind], (uint16_t)g->stage},
          g->whole,
          NULL,
          0,
          !moves};
      if (moves && cost)
        task[*count].cost =
            kinds[kind] == PEN_REDUCE_SCATTER ? cost[g->stage].reduce : cost[g->stage].gather;
      if (moves) task[*count].needs = &task[*count - gradients];
      (*count)++;
    }
  return task;
}

/* Puts rows before actions that the rank waits for; `fitting`: no more than the wait has room for.
 */
static void fill_pauses(struct task *task, size_t count, const double *start, const double *end,
                        uint32_t actions, bool fitting) {
  for (uint32_t index = 1; index < actions; index++) {
    double room = start[index] - end[index - 1];
    if (!(room > 0)) continue;
    for (size_t i = 0; i < count; i++) {
      struct task *t = &task[i];
      bool ready = !t->placed && t->ready <= index &&
                   (!t->needs || (t->needs->placed && t->needs->row.before <= index));
      if (!ready || (fitting && t->cost > room)) continue;
      t->row.before = index;
      t->placed = true;
      room -= t->cost;
    }
  }
}

static int compare_places(const void *a, const void *b) {
  const struct task *x = a, *y = b;
  if (x->row.before != y->row.before) return x->row.before < y->row.before ? -1 : 1;
  return (x->ready > y->ready) - (x->ready < y->ready); /* see sort_rows: a stable sort */
}

/* By place; what shares one stays in the order of the tasks. */
static struct pen_collective *sort_rows(const struct task *task, size_t count) {
  struct task *sorted = pen_new(count + 1, sizeof *sorted);
  struct pen_collective *row = pen_new(count + 1, sizeof *row);
  for (size_t i = 0; i < count; i++) {
    sorted[i] = task[i];
    sorted[i].ready = (uint32_t)i;
  }
  qsort(sorted, count, sizeof *sorted, compare_places);
  for (size_t i = 0; i < count; i++) row[i] = sorted[i].row;
  pen_free(sorted);
  return row;
}

struct pen_collectives *pen_collectives_of(const struct pen_order *order,
                                           const struct pen_partition *partition,
                                           const struct pen_training *training,
                                           const struct pen_timing *timing,
                                           const struct pen_collective_cost *cost,
                                           enum pen_collectives_rule rule, int profile_kind) {
  if (partition->replica_count <= 1 ||
      (profile_kind != PEN_TRAIN && partition->sharding != PEN_SHARD_WEIGHTS))
    return NULL;
  struct pen_collectives *exchange = pen_new(1, sizeof *exchange);
  exchange->count = pen_new(order->rank_count, sizeof *exchange->count);
  exchange->row = pen_new(order->rank_count, sizeof *exchange->row);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    size_t count;
    struct task *task = tasks_of(order, partition, training, rank, cost, profile_kind, &count);
    if (rule != PEN_COLLECTIVES_LAST)
      fill_pauses(task, count, timing->start[rank], timing->end[rank], order->count[rank],
                  rule == PEN_COLLECTIVES_FITTING);
    exchange->row[rank] = sort_rows(task, count);
    exchange->count[rank] = (uint32_t)count;
  }
  return exchange;
}
