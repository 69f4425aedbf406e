/* simulate.c: discrete-event simulation of an order: when each action starts and ends.
 *
 * A heap contains the ranks whose next action can start, by start time, then by rank. The first is
 * removed and its action run, which may make the next action of its own rank and of up to two
 * others ready. Start times never decrease, so the order of removal is by time, and it is a
 * topological order even if costs are zero. n actions on P ranks take O(n log P).
 */
#include <math.h>
#include <string.h>

#include "gen/timing/cost.h"
#include "gen/timing/lower_bound.h"
#include "gen/base/arena.h"
#include "gen/base/heap.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/collectives.h"
#include "runtime/plan/plan.h"

struct rank_queue {
  uint32_t next;  /* the action to run */
  double free_at; /* the end of the action before */
};

struct simulation {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_stage_cost *cost;
  const struct pen_collective_cost *collective_cost; /* NULL: no collectives */
  double overlap_cost;
  struct pen_timing *timing;
  struct rank_queue *queue;           /* [rank] */
  struct pen_heap heap;               /* of ranks, by the start of their next action */
  bool *waiting;                      /* [rank]: it is in the heap */
  double *forward_end, *backward_end; /* [stage][microbatch]; NaN: not yet */
  bool *input_gradient_done;          /* [stage][microbatch]: its I has run */
  uint64_t turn;
};

static size_t cell_of(const struct simulation *run, uint32_t stage, uint32_t microbatch) {
  return (size_t)stage * run->partition->microbatch_count + microbatch;
}

double pen_action_cost(const struct pen_stage_cost *cost,
                       const struct pen_collective_cost *collective_cost,
                       const struct pen_compute *action) {
  switch (action->kind) {
    case PEN_REDUCE_SCATTER:
    case PEN_REDUCE_GROUPS:
    case PEN_GATHER_GROUPS:
    case PEN_ALL_GATHER_GRAD:
    case PEN_ALL_GATHER_WEIGHT:
    case PEN_UNSHARD: return pen_collective_cost_of(collective_cost, action->stage, action->kind);
    case PEN_F: return cost[action->stage].forward;
    case PEN_I: return cost[action->stage].backward_input;
    case PEN_W: return cost[action->stage].backward_weight;
    default: return pen_backward_cost(&cost[action->stage]);
  }
}

static double action_cost(const struct simulation *run, const struct pen_compute *action) {
  return pen_action_cost(run->cost, run->collective_cost, action);
}

/* How much of an action's cost is collectives of the replicas. */
static double exchange_cost(const struct simulation *run, const struct pen_compute *action) {
  int program = pen_program_of(action->kind);
  return program < 0 ? action_cost(run, action) : run->cost[action->stage].within[program];
}

/* ---- running actions ---- */

/* When the result of another stage is available on `rank`; NaN: not yet known. */
static double arrival_time(const struct simulation *run, const double *end, uint32_t stage,
                           uint32_t microbatch, uint32_t rank) {
  double sent = end[cell_of(run, stage, microbatch)];
  return sent + pen_send_cost(run->partition, run->cost, stage, rank);
}

/* When all inputs of an action are available; NaN: not yet known. */
static double ready_time(const struct simulation *run, uint32_t rank,
                         const struct pen_compute *action) {
  uint32_t stage = action->stage, microbatch = action->microbatch;
  size_t own = cell_of(run, stage, microbatch);
  if (action->kind > PEN_W) return 0;
  if (action->kind == PEN_F)
    return stage == 0 ? 0 : arrival_time(run, run->forward_end, stage - 1, microbatch, rank);
  if (action->kind == PEN_W) return run->input_gradient_done[own] ? run->backward_end[own] : NAN;
  double forward = run->forward_end[own];
  if (stage + 1 == run->partition->stage_count) return forward;
  double gradient = arrival_time(run, run->backward_end, stage + 1, microbatch, rank);
  return isnan(forward) || isnan(gradient) ? NAN : fmax(forward, gradient);
}

static bool is_pair(const struct simulation *run, uint32_t rank, uint32_t index) {
  return run->order->action[rank][index].overlaps && index + 1 < run->order->count[rank];
}

/* Adds a rank to the heap if its next action can start. */
static void queue_if_ready(struct simulation *run, uint32_t rank) {
  struct rank_queue *queue = &run->queue[rank];
  if (run->waiting[rank] || queue->next == run->order->count[rank]) return;
  const struct pen_compute *action = &run->order->action[rank][queue->next];
  double ready = ready_time(run, rank, action);
  if (!isnan(ready) && is_pair(run, rank, queue->next)) {
    double second = ready_time(run, rank, action + 1);
    ready = isnan(second) ? NAN : fmax(ready, second);
  }
  if (isnan(ready)) return;
  run->waiting[rank] = true;
  pen_heap_push(&run->heap, (struct pen_heap_item){fmax(ready, queue->free_at), rank, rank});
}

static void record_times(struct simulation *run, uint32_t rank, uint32_t index, double start,
                         double end) {
  const struct pen_compute *action = &run->order->action[rank][index];
  size_t own = cell_of(run, action->stage, action->microbatch);
  run->timing->start[rank][index] = start;
  run->timing->end[rank][index] = end;
  run->timing->turn[rank][index] = run->turn++;
  if (action->kind == PEN_F) run->forward_end[own] = end;
  if (action->kind == PEN_B || action->kind == PEN_I) run->backward_end[own] = end;
  if (action->kind == PEN_I) run->input_gradient_done[own] = true;
}

/* Adds the ranks that may wait for an action: the receiver of its message, and its own. */
static void queue_dependents(struct simulation *run, uint32_t rank,
                             const struct pen_compute *action) {
  const uint32_t receiver = pen_message_stage(run->partition, action, 1);
  if (receiver != PEN_NONE) queue_if_ready(run, run->partition->rank_of[receiver]);
  queue_if_ready(run, rank);
}

/* Runs the next action of a rank, or the next pair. */
static void run_next_action(struct simulation *run, uint32_t rank, double start) {
  struct rank_queue *queue = &run->queue[rank];
  const struct pen_compute *action = &run->order->action[rank][queue->next];
  bool pair = is_pair(run, rank, queue->next);
  double lasts = action_cost(run, action);
  if (pair)
    lasts = run->overlap_cost >= 0 ? run->overlap_cost : lasts + action_cost(run, action + 1);
  double end = start + lasts;
  double within = exchange_cost(run, action) + (pair ? exchange_cost(run, action + 1) : 0);
  within = fmin(within, lasts);
  run->timing->exchanging[rank] += within;
  run->timing->busy[rank] += lasts - within;
  record_times(run, rank, queue->next, start, end);
  if (pair) record_times(run, rank, queue->next + 1, start, end);
  queue->next += pair ? 2 : 1;
  queue->free_at = end;
  run->waiting[rank] = false;
  queue_dependents(run, rank, action);
  if (pair) queue_dependents(run, rank, action + 1);
}

/* ---- the simulation ---- */

static struct simulation start_simulation(const struct pen_order *order,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          const struct pen_stage_cost *cost,
                                          const struct pen_collective_cost *collective_cost,
                                          double overlap_cost) {
  uint32_t ranks = order->rank_count;
  size_t cells = (size_t)partition->stage_count * partition->microbatch_count;
  struct pen_timing *timing = pen_new(1, sizeof *timing);
  struct simulation run = {.order = order,
                           .partition = partition,
                           .training = training,
                           .cost = cost,
                           .collective_cost = collective_cost,
                           .overlap_cost = overlap_cost,
                           .timing = timing};
  timing->start = pen_new(ranks, sizeof *timing->start);
  timing->end = pen_new(ranks, sizeof *timing->end);
  timing->turn = pen_new(ranks, sizeof *timing->turn);
  timing->busy = pen_new(ranks, sizeof(double));
  timing->idle = pen_new(ranks, sizeof(double));
  timing->exchanging = pen_new(ranks, sizeof(double));
  run.queue = pen_new(ranks, sizeof *run.queue);
  run.waiting = pen_new(ranks, sizeof *run.waiting);
  run.forward_end = pen_new(cells, sizeof(double));
  run.backward_end = pen_new(cells, sizeof(double));
  run.input_gradient_done = pen_new(cells, sizeof(bool));
  for (size_t index = 0; index < cells; index++)
    run.forward_end[index] = run.backward_end[index] = NAN;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    timing->start[rank] = pen_new(order->count[rank], sizeof(double));
    timing->end[rank] = pen_new(order->count[rank], sizeof(double));
    timing->turn[rank] = pen_new(order->count[rank], sizeof(uint64_t));
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      timing->start[rank][index] = timing->end[rank][index] = NAN;
      timing->turn[rank][index] = UINT64_MAX;
    }
  }
  return run;
}

/* The first and the last compute action of a rank; false: it has none. */
static bool compute_range(const struct pen_order *order, uint32_t rank, uint32_t *first,
                          uint32_t *last) {
  const struct pen_compute *action = order->action[rank];
  for (*last = order->count[rank]; *last > 0 && action[*last - 1].kind > PEN_W; (*last)--) continue;
  for (*first = 0; *first < *last && action[*first].kind > PEN_W; (*first)++) continue;
  return (*last)-- > 0;
}

static double idle_share_of(const struct pen_timing *timing, uint32_t rank_count) {
  double busy = 0;
  for (uint32_t rank = 0; rank < rank_count; rank++) busy += timing->busy[rank] / rank_count;
  return timing->makespan > busy ? 1 - busy / timing->makespan : 0; /* less: by rounding */
}

/* Sets the totals of a complete run. */
static void total_times(struct simulation *run) {
  struct pen_timing *timing = run->timing;
  double begins = INFINITY, ends = -INFINITY,
         *after = pen_tied_weight_tail(run->partition, run->training, run->cost);
  for (uint32_t rank = 0; rank < run->order->rank_count; rank++) {
    uint32_t first, last;
    if (run->order->count[rank] == 0) continue;
    begins = fmin(begins, timing->start[rank][0]);
    ends = fmax(ends, run->queue[rank].free_at + after[rank]);
    if (compute_range(run->order, rank, &first, &last))
      timing->span = fmax(timing->span, timing->end[rank][last] - timing->start[rank][first]);
    timing->work = fmax(timing->work, timing->busy[rank]);
  }
  pen_free(after);
  timing->makespan = ends > begins ? ends - begins : 0;
  timing->bubble = timing->span > timing->work ? (timing->span - timing->work) / timing->span
                                               : 0; /* less: by rounding */
  timing->idle_share = idle_share_of(timing, run->order->rank_count);
  for (uint32_t rank = 0; rank < run->order->rank_count; rank++)
    timing->idle[rank] = fmax(0, timing->makespan - timing->busy[rank] -
                                     timing->exchanging[rank]); /* below 0: by rounding */
}

struct pen_timing *pen_simulate_collectives(const struct pen_order *order,
                                            const struct pen_partition *partition,
                                            const struct pen_training *training,
                                            const struct pen_stage_cost *cost,
                                            const struct pen_collective_cost *collective_cost,
                                            double overlap_cost) {
  struct simulation run =
      start_simulation(order, partition, training, cost, collective_cost, overlap_cost);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) queue_if_ready(&run, rank);
  while (run.heap.count > 0) {
    struct pen_heap_item first = pen_heap_pop(&run.heap);
    run_next_action(&run, (uint32_t)first.value, first.key);
  }
  pen_free(run.heap.item);
  pen_free(run.forward_end);
  pen_free(run.backward_end);
  pen_free(run.input_gradient_done);
  pen_free(run.waiting);
  struct pen_timing *timing = run.timing;
  timing->complete = true;
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    if (run.queue[rank].next < order->count[rank]) timing->complete = false;
  if (timing->complete)
    total_times(&run);
  else
    timing->makespan = timing->span = timing->work = timing->bubble = timing->idle_share =
        timing->lower_bound = timing->gap = NAN;
  pen_free(run.queue);
  return timing;
}

void pen_timing_free(struct pen_timing *timing, uint32_t rank_count) {
  for (uint32_t rank = 0; rank < rank_count; rank++) {
    pen_free(timing->start[rank]);
    pen_free(timing->end[rank]);
    pen_free(timing->turn[rank]);
  }
  pen_free(timing->start);
  pen_free(timing->end);
  pen_free(timing->turn);
  pen_free(timing->busy);
  pen_free(timing->idle);
  pen_free(timing->exchanging);
  pen_free(timing);
}

struct pen_timing *pen_simulate(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost, double overlap_cost) {
  struct pen_timing *timing =
      pen_simulate_collectives(order, partition, training, cost, NULL, overlap_cost);
  if (!timing->complete) return timing;
  double bound =
      pen_bounds_of(order, partition, training, cost, NULL, overlap_cost, NULL).makespan.greatest;
  timing->lower_bound = pen_bound_rounded(bound, timing->makespan);
  timing->gap =
      timing->lower_bound > 0 ? (timing->makespan - timing->lower_bound) / timing->lower_bound : 0;
  return timing;
}

uint32_t *pen_timing_done(const struct pen_timing *timing, const struct pen_order *order) {
  uint32_t *done = pen_new(order->rank_count, sizeof *done);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    while (done[rank] < order->count[rank] && timing->turn[rank][done[rank]] != UINT64_MAX)
      done[rank]++;
  return done;
}
