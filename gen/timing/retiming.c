/* retiming.c: times one order again and again, each time with other costs.
 *
 * The simulator (simulate.c) numbers the actions in an order in which they can run one at a time.
 * That order holds for any costs, since it follows from the lists alone. So the graph is built
 * once, in that order, and a makespan is one pass over it: an action starts when its rank is free
 * and the message from another rank, if it needs one, has arrived. What it needs of its own rank is
 * earlier in the rank's list. */
#include "gen/timing/retiming.h"

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

struct graph_building {
  const struct pen_order *order;
  const struct pen_timing *timing;
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_collective_cost *collective_cost;
  double overlap_cost;
  struct pen_retiming *graph;
  uint32_t *node_of; /* [factor_count] the node with the action of that factor */
};

static bool is_second(const struct graph_building *building, uint32_t rank, uint32_t index) {
  return index > 0 && building->order->action[rank][index - 1].overlaps;
}

/* The nodes in the order of the simulation. Sets their ranks, and in `first` the indices of their
 * actions. */
static void number_nodes(struct graph_building *building, uint32_t *first) {
  const struct pen_order *order = building->order;
  struct pen_retiming *graph = building->graph;
  uint32_t total = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) total += order->count[rank];
  uint32_t *rank_at = pen_new(total + 1u, sizeof *rank_at),
           *index_at = pen_new(total + 1u, sizeof *index_at);
  for (uint32_t rank = 0; rank < order->rank_count; rank++)
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      rank_at[building->timing->turn[rank][index]] = rank;
      index_at[building->timing->turn[rank][index]] = index;
    }
  for (uint32_t turn = 0; turn < total; turn++) {
    uint32_t rank = rank_at[turn], index = index_at[turn];
    const struct pen_compute *action = &order->action[rank][index];
    if (is_second(building, rank, index)) {
      building->node_of[pen_retiming_factor(building->partition, action)] = graph->node_count - 1;
      continue;
    }
    building->node_of[pen_retiming_factor(building->partition, action)] = graph->node_count;
    graph->node[graph->node_count].rank = rank;
    first[graph->node_count++] = index;
  }
  pen_free(rank_at);
  pen_free(index_at);
}

/* Sets what action `which` of a node costs and waits for. */
static void add_action(const struct graph_building *building, struct pen_retiming_node *node,
                       int which, const struct pen_compute *action) {
  const struct pen_partition *partition = building->partition;
  struct pen_compute sender = *action;
  node->cost[which] = pen_action_cost(building->cost, building->collective_cost, action);
  node->factor[which] = pen_retiming_factor(partition, action);
  bool waits = false;
  if (action->kind == PEN_F && action->stage > 0) {
    sender.stage--;
    waits = true;
  } else if ((action->kind == PEN_B || action->kind == PEN_I) &&
             action->stage + 1u < partition->stage_count) {
    sender.stage++;
    waits = true;
  }
  if (!waits || partition->rank_of[sender.stage] == node->rank) return;
  node->input[which] = building->node_of[pen_retiming_factor(partition, &sender)];
  node->delay[which] = pen_send_cost(partition, building->cost, sender.stage, node->rank);
}

static void fill_node(const struct graph_building *building, uint32_t n, uint32_t index) {
  const struct pen_retiming *graph = building->graph;
  struct pen_retiming_node *node = &graph->node[n];
  const struct pen_compute *action = &building->order->action[node->rank][index];
  for (int which = 0; which < 2; which++) {
    node->factor[which] = graph->factor_count - 1;
    node->input[which] = graph->node_count;
  }
  add_action(building, node, 0, action);
  if (!action->overlaps || index + 1 == building->order->count[node->rank]) return;
  add_action(building, node, 1, action + 1);
  if (building->overlap_cost < 0) return;
  node->cost[0] = building->overlap_cost;
  node->cost[1] = 0;
}

struct pen_retiming *pen_retiming(const struct pen_order *order, const struct pen_timing *timing,
                                  const struct pen_partition *partition,
                                  const struct pen_training *training,
                                  const struct pen_stage_cost *cost,
                                  const struct pen_collective_cost *collective_cost,
                                  double overlap_cost) {
  struct pen_retiming *graph = pen_new(1, sizeof *graph);
  size_t total = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) total += order->count[rank];
  graph->rank_count = order->rank_count;
  graph->factor_count = PEN_PROGRAM_B * partition->stage_count * partition->microbatch_count + 1;
  graph->node = pen_new(total + 1, sizeof *graph->node);
  graph->end = pen_new(total + 1, sizeof *graph->end);
  graph->free_at = pen_new(order->rank_count, sizeof *graph->free_at);
  graph->after = pen_tied_weight_tail(partition, training, cost);
  struct graph_building building = {
      order,           timing,       partition, cost,
      collective_cost, overlap_cost, graph,     pen_new(graph->factor_count, sizeof(uint32_t))};
  uint32_t *first = pen_new(total + 1, sizeof *first);
  number_nodes(&building, first);
  for (uint32_t n = 0; n < graph->node_count; n++) fill_node(&building, n, first[n]);
  pen_free(first);
  pen_free(building.node_of);
  return graph;
}

void pen_retiming_free(struct pen_retiming *retiming) {
  pen_free(retiming->node);
  pen_free(retiming->end);
  pen_free(retiming->free_at);
  pen_free(retiming->after);
  pen_free(retiming);
}

static inline double later(double one, double other) { return one > other ? one : other; }

double pen_retime(struct pen_retiming *retiming, const double *factor) {
  const struct pen_retiming_node *node = retiming->node;
  double *end = retiming->end, *free_at = retiming->free_at, makespan = 0;
  for (uint32_t rank = 0; rank < retiming->rank_count; rank++) free_at[rank] = 0;
  for (uint32_t n = 0; n < retiming->node_count; n++, node++) {
    double start = later(free_at[node->rank], later(end[node->input[0]] + node->delay[0],
                                                    end[node->input[1]] + node->delay[1]));
    end[n] = free_at[node->rank] =
        start + (node->cost[0] * factor[node->factor[0]] + node->cost[1] * factor[node->factor[1]]);
  }
  for (uint32_t rank = 0; rank < retiming->rank_count; rank++)
    makespan = later(makespan, free_at[rank] + retiming->after[rank]);
  return makespan;
}
