/* retiming.c: times one order again and again, each time with other costs.
 *
 * The simulator (simulate.c) numbers the actions in an order in which they can run one at a time.
 * That order holds for any costs, since it follows from the lists alone. So the graph is built
 * once, in that order, and a makespan is one pass over it: an action starts when its rank is free
 * and the message from another rank, if it needs one, has arrived. What it needs of its own rank is
 * earlier in the rank's list. The search makes such nodes of what a move changes, and passes over
 * them in many draws at once (gen/search/percentile.c). */
#include "gen/timing/retiming.h"

#include <stdbool.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/graph.h"
#include "gen/timing/cost.h"
#include "runtime/plan/plan.h"

uint32_t pen_retiming_factor(const struct pen_partition *partition,
                             const struct pen_compute *action) {
  int program = pen_program_of(action->kind);
  if (program == PEN_PROGRAM_B) program = PEN_PROGRAM_I;
  uint32_t stages = partition->stage_count, row = (uint32_t)program * stages + action->stage;
  if (program < 0) row = PEN_PROGRAM_B * stages;
  return row * partition->microbatch_count + (program < 0 ? 0 : action->microbatch);
}

/* Sets what action `which` of a node costs and waits for. */
static void add_action(struct pen_retiming_node *node, int which, const struct pen_compute *action,
                       const struct pen_partition *partition, const struct pen_stage_cost *cost,
                       const uint32_t *slot_of) {
  struct pen_compute sender = *action;
  node->factor[which] = pen_retiming_factor(partition, action);
  const uint32_t stage = pen_message_stage(partition, action, -1);
  if (stage == PEN_NONE) return;
  sender.stage = stage;
  node->input[which] = slot_of[pen_retiming_factor(partition, &sender)];
  node->delay[which] = pen_send_cost(partition, cost, stage, partition->rank_of[action->stage]);
}

struct pen_retiming *pen_retiming(const struct pen_order *order, const struct pen_timing *timing,
                                  const struct pen_partition *partition,
                                  const struct pen_training *training,
                                  const struct pen_stage_cost *cost,
                                  const struct pen_collective_cost *collective_cost,
                                  double overlap_cost) {
  struct pen_retiming *graph = pen_new(1, sizeof *graph);
  size_t total = 0;
  if (timing->whole) {
    order = timing->whole_order;
    timing = timing->whole;
  }
  for (uint32_t rank = 0; rank < order->rank_count; rank++) total += order->count[rank];
  graph->rank_count = order->rank_count;
  graph->factor_count = PEN_PROGRAM_B * partition->stage_count * partition->microbatch_count + 1;
  graph->node = pen_new(total + 1, sizeof *graph->node);
  graph->end = pen_new(total + 1, sizeof *graph->end);
  graph->last = pen_new(order->rank_count, sizeof *graph->last);
  graph->after = pen_tied_weight_tail(partition, training, cost);
  const struct pen_compute **at = pen_new(total + 1, sizeof *at);
  uint32_t *rank_at = pen_new(total + 1, sizeof *rank_at),
           *slot_of = pen_new(graph->factor_count, sizeof *slot_of); /* of an action's end */
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      at[timing->turn[rank][index]] = &order->action[rank][index];
      rank_at[timing->turn[rank][index]] = rank;
    }
  for (size_t turn = 0; turn < total; turn++) {
    const struct pen_compute *action = at[turn];
    const uint32_t rank = rank_at[turn];
    const bool second = action > order->action[rank] && action[-1].overlaps;
    if (!second) graph->node_count++;
    struct pen_retiming_node *node = &graph->node[graph->node_count - 1];
    add_action(node, second, action, partition, cost, slot_of);
    node->cost[second] = pen_action_cost(cost, collective_cost, action);
    if (second && overlap_cost >= 0) {
      node->cost[0] = overlap_cost;
      node->cost[1] = 0;
    }
    if (!second) node->free_at = graph->last[rank];
    slot_of[node->factor[second]] = graph->last[rank] = node->end = graph->node_count;
  }
  pen_free(at);
  pen_free(rank_at);
  pen_free(slot_of);
  return graph;
}

void pen_retiming_free(struct pen_retiming *retiming) {
  pen_free(retiming->node);
  pen_free(retiming->end);
  pen_free(retiming->last);
  pen_free((void *)retiming->after);
  pen_free(retiming);
}

#define LATER(one, other) ((one) > (other) ? (one) : (other))
#define ARRIVAL(real, which) (slot[node->input[which]][i] + (real)node->delay[which])
#define WORK(real, which) ((real)node->cost[which] * factor[node->factor[which]][i])

/* One pass over the nodes, in each of `lanes` draws: a node starts at the last of what it waits
 * for, and ends after its costs, each times its factor. */
#define DEFINE_PASS(name, real, lanes)                                          \
  static void name(const struct pen_retiming *graph, real(*slot)[lanes],        \
                   const real(*factor)[lanes], real makespan[lanes]) {          \
    const struct pen_retiming_node *node = graph->node;                         \
    for (uint32_t n = 0; n < graph->node_count; n++, node++) {                  \
      const bool pair = node->input[1] > 0 || node->cost[1] > 0;                \
      const real *free_at = slot[node->free_at];                                \
      real end[lanes];                                                          \
      for (int i = 0; !pair && i < lanes; i++)                                  \
        end[i] = LATER(free_at[i], ARRIVAL(real, 0)) + WORK(real, 0);           \
      for (int i = 0; pair && i < lanes; i++)                                   \
        end[i] = LATER(LATER(free_at[i], ARRIVAL(real, 0)), ARRIVAL(real, 1)) + \
                 (WORK(real, 0) + WORK(real, 1));                               \
      memcpy(slot[node->end], end, sizeof end);                                 \
    }                                                                           \
    for (int i = 0; i < lanes; i++) makespan[i] = 0;                            \
    for (uint32_t rank = 0; rank < graph->rank_count; rank++)                   \
      for (int i = 0; i < lanes; i++) {                                         \
        const real end = slot[graph->last[rank]][i] + (real)graph->after[rank]; \
        makespan[i] = LATER(makespan[i], end);                                  \
      }                                                                         \
  }
DEFINE_PASS(pass_once, double, 1)
DEFINE_PASS(pass_lanes, float, PEN_RETIMING_LANES)

double pen_retime(struct pen_retiming *retiming, const double *factor) {
  double makespan;
  pass_once(retiming, (double(*)[1])retiming->end, (const double(*)[1])factor, &makespan);
  return makespan;
}

void pen_retime_lanes(const struct pen_retiming *retiming, float (*end)[PEN_RETIMING_LANES],
                      const float (*factor)[PEN_RETIMING_LANES],
                      float makespan[PEN_RETIMING_LANES]) {
  pass_lanes(retiming, end, factor, makespan);
}
