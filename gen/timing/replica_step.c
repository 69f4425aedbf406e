/* replica_step.c: a step of replicas in time: the actions, and the rows of the exchange among them.
 *
 * The rows of the exchange that take time are put into the ranks' lists, and the lists are
 * simulated like any others. Peers run the same lists with the same costs, so a row finds them
 * where it is itself, and waits for none. What runs before the first action and behind the last
 * counts for the makespan; the span, the work and the bubble are those of the actions alone, and so
 * is the lower bound.
 *
 * The actions are simulated alone first: their pauses are where the exchange may hide. Each rule of
 * exchange.c is then tried, and the one with the shortest step taken, the first of equals. */
#include <math.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "runtime/plan/plan.h"

static bool takes_time(int kind) {
  return kind == PEN_REDUCE_SCATTER || kind == PEN_ALL_GATHER_GRAD ||
         kind == PEN_ALL_GATHER_WEIGHT || kind == PEN_UNSHARD;
}

/* The lists of an order with the rows of an exchange in their places. */
static struct pen_order *join(const struct pen_order *order,
                              const struct pen_collectives *exchange) {
  struct pen_order *joint = pen_new(1, sizeof *joint);
  *joint = (struct pen_order){order->rank_count, pen_new(order->rank_count, sizeof(uint32_t)),
                              pen_new(order->rank_count, sizeof(struct pen_compute *))};
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    const struct pen_collective *row = exchange->row[rank];
    uint32_t count = order->count[rank], rows = exchange->count[rank], next = 0,
             *used = &joint->count[rank];
    struct pen_compute *action = joint->action[rank] =
        pen_new((size_t)count + rows + 1, sizeof *action);
    for (uint32_t index = 0; index <= count; index++) {
      for (; next < rows && (row[next].before <= index || index == count); next++)
        if (takes_time(row[next].kind))
          action[(*used)++] = (struct pen_compute){row[next].kind, false, row[next].stage, 0};
      if (index < count) action[(*used)++] = order->action[rank][index];
    }
  }
  return joint;
}

/* Leaves out turns that no action has: numbers[turn] of the whole is its place among the actions.
 */
static uint64_t *renumber(const struct pen_order *joint, const struct pen_timing *whole) {
  size_t total = 0;
  for (uint32_t rank = 0; rank < joint->rank_count; rank++) total += joint->count[rank];
  uint64_t *number = pen_new(total + 1, sizeof *number), next = 0;
  for (uint32_t rank = 0; rank < joint->rank_count; rank++)
    for (uint32_t i = 0; i < joint->count[rank]; i++)
      number[whole->turn[rank][i]] = joint->action[rank][i].kind <= PEN_W;
  for (size_t turn = 0; turn < total; turn++) {
    bool counts = number[turn];
    number[turn] = next;
    next += counts;
  }
  return number;
}

/* The times of the actions alone, taken out of those of all rows. */
static void take_actions(struct pen_timing *timing, const struct pen_order *joint,
                         const struct pen_timing *whole) {
  uint64_t *number = renumber(joint, whole);
  for (uint32_t rank = 0; rank < joint->rank_count; rank++)
    for (uint32_t i = 0, index = 0; i < joint->count[rank]; i++) {
      if (joint->action[rank][i].kind > PEN_W) continue;
      timing->start[rank][index] = whole->start[rank][i];
      timing->end[rank][index] = whole->end[rank][i];
      timing->turn[rank][index++] = number[whole->turn[rank][i]];
    }
  pen_free(number);
}

struct pen_timing *pen_simulate_step(const struct pen_order *order,
                                     const struct pen_partition *partition,
                                     const struct pen_training *training,
                                     const struct pen_stage_cost *cost,
                                     const struct pen_collective_cost *exchange_cost,
                                     double overlap_cost, int profile_kind, bool given) {
  struct pen_timing *timing = pen_simulate(order, partition, training, cost, overlap_cost);
  struct pen_timing *best = NULL;
  if (!timing->complete || !isfinite(timing->makespan)) return timing;
  for (int rule = given ? PEN_COLLECTIVES_LAST : PEN_COLLECTIVES_FITTING;
       rule < PEN_COLLECTIVES_RULES; rule++) {
    const struct pen_collectives *exchange =
        pen_collectives_of(order, partition, training, timing, exchange_cost,
                           (enum pen_collectives_rule)rule, profile_kind);
    if (!exchange) return timing;
    const struct pen_order *joint = join(order, exchange);
    struct pen_timing *whole =
        pen_simulate_collectives(joint, partition, training, cost, exchange_cost, overlap_cost);
    if (!whole->complete)
      pen_stop(70, "step timing: the exchange between replicas holds up the step");
    if (best && !(whole->makespan < best->makespan)) continue;
    best = whole;
    timing->exchange = exchange;
    timing->whole_order = joint;
  }
  take_actions(timing, timing->whole_order, best);
  timing->whole = best;
  timing->exposed = best->makespan - timing->makespan;
  timing->makespan = best->makespan;
  timing->span = best->span;
  timing->bubble = best->bubble;
  timing->idle = best->idle;
  timing->exchanging = best->exchanging;
  timing->gap =
      timing->lower_bound > 0 ? (timing->makespan - timing->lower_bound) / timing->lower_bound : 0;
  best->lower_bound = timing->lower_bound;
  best->gap = timing->gap;
  return timing;
}
