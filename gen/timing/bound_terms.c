/* bound_terms.c: the terms of the lower bounds: sums over the actions, and paths between stages. */
#include "gen/timing/bound_terms.h"
#include "gen/base/arena.h"
#include "gen/timing/cost.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/schedule/schedule.h"
#include "runtime/plan/plan.h"

#include <math.h>

static double cost_of_action(const struct pen_bound_terms *b, const struct pen_compute *action) {
  const struct pen_stage_cost *cost = &b->cost[action->stage];
  if (action->kind == PEN_F) return cost->forward;
  if (action->kind == PEN_I) return cost->backward_input;
  return action->kind == PEN_W ? cost->backward_weight : pen_backward_cost(cost);
}

static double link_cost(const struct pen_bound_terms *b, uint32_t from, uint32_t to) {
  return pen_send_cost(b->partition, b->cost, from, b->partition->rank_of[to]);
}

static double exchange_before(const struct pen_bound_terms *b, uint32_t stage) {
  return b->exchange ? b->exchange[stage].before : 0;
}

/* ---- sums over the actions ---- */

/* An action of a pair takes at most as long as the pair; the cost of the pair counts at its first.
 */
static void add_to_sums(struct pen_bound_terms *b, uint32_t rank, uint32_t index) {
  const struct pen_compute *action = &b->order->action[rank][index];
  bool first = action->overlaps && index + 1 < b->order->count[rank],
       second = index > 0 && action[-1].overlaps;
  bool overlaps = (first || second) && b->overlap_cost >= 0;
  double cost = cost_of_action(b, action), least = overlaps ? fmin(cost, b->overlap_cost) : cost;
  double counted = !overlaps ? cost : first ? b->overlap_cost : 0;
  struct pen_stage_least *stage = &b->least[action->stage];
  struct pen_rank_sum *sum = &b->sum[rank];
  sum->work += counted;
  if (action->kind == PEN_W) {
    stage->weight = fmin(stage->weight, least);
    stage->weights++;
    sum->weights = true;
  } else {
    sum->critical += counted;
  }
  if (action->kind == PEN_F) {
    stage->forward = fmin(stage->forward, least);
    stage->forward_sum += overlaps ? 0 : cost;
  }
  if (action->kind == PEN_I || action->kind == PEN_B) {
    stage->backward = fmin(stage->backward, least);
    stage->backward_sum += overlaps ? 0 : cost;
    stage->has_backward = true;
  }
  sum->lowest = !sum->any || action->stage < sum->lowest ? action->stage : sum->lowest;
  sum->highest = !sum->any || action->stage > sum->highest ? action->stage : sum->highest;
  sum->any = true;
}

static void find_least(struct pen_bound_terms *b) {
  uint32_t stages = b->partition->stage_count;
  for (uint32_t stage = 0; stage < stages; stage++)
    b->least[stage] =
        (struct pen_stage_least){.forward = INFINITY, .backward = INFINITY, .weight = INFINITY};
  for (uint32_t rank = 0; rank < b->order->rank_count; rank++)
    for (uint32_t index = 0; index < b->order->count[rank]; index++) add_to_sums(b, rank, index);
  uint32_t *latest = pen_new(b->order->rank_count, sizeof *latest);
  for (uint32_t stage = stages; stage-- > 0;) {
    uint32_t rank = b->partition->rank_of[stage];
    b->next[stage] = latest[rank] ? latest[rank] - 1 : PEN_NONE;
    latest[rank] = stage + 1;
    if (b->least[stage].weights < b->partition->microbatch_count) b->least[stage].weight = 0;
    if (!b->least[stage].has_backward) b->least[stage].backward = 0;
    b->sum[rank].reduce += pen_bound_exchange_after(b, stage);
    b->sum[rank].exchange += exchange_before(b, stage) + pen_bound_exchange_after(b, stage);
  }
}

static void find_paths(struct pen_bound_terms *b) {
  uint32_t last = b->partition->stage_count - 1;
  b->start[0] = exchange_before(b, 0);
  for (uint32_t stage = 1; stage <= last; stage++) {
    double forward = b->least[stage - 1].forward, link = link_cost(b, stage - 1, stage);
    b->before[stage] = b->before[stage - 1] + forward + link;
    b->start[stage] = fmax(exchange_before(b, stage), b->start[stage - 1] + forward + link);
    b->back[stage] =
        link_cost(b, stage, stage - 1) + b->least[stage - 1].backward + b->back[stage - 1];
  }
  b->down[last] = b->least[last].forward;
  for (uint32_t stage = last; stage-- > 0;)
    b->down[stage] = b->least[stage].forward + link_cost(b, stage, stage + 1) + b->down[stage + 1];
}

struct pen_bound_terms pen_bound_terms_of(const struct pen_order *order,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          const struct pen_stage_cost *cost,
                                          const struct pen_exchange_least *exchange,
                                          double overlap_cost, const struct pen_budget *budget) {
  uint32_t stages = partition->stage_count;
  struct pen_bound_terms b = {order,
                              partition,
                              pen_costs_balanced(partition, cost),
                              exchange,
                              pen_order_has_pair(order) ? overlap_cost : -1,
                              budget,
                              .least = pen_new(stages, sizeof *b.least),
                              .sum = pen_new(order->rank_count, sizeof *b.sum),
                              .after = pen_tied_weight_tail(partition, training, cost),
                              .before = pen_new(stages, sizeof(double)),
                              .start = pen_new(stages, sizeof(double)),
                              .down = pen_new(stages, sizeof(double)),
                              .back = pen_new(stages, sizeof(double)),
                              .next = pen_new(stages, sizeof(uint32_t))};
  find_least(&b);
  find_paths(&b);
  return b;
}
