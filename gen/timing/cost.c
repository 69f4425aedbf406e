/* cost.c: the costs of the compute actions of each stage: from the topology, or by floating-point
 * operations.
 *
 * If the topology gives some costs of a stage, the missing ones are in proportion to their flops.
 * Without any, the unit is 10^9 flops. `send` is 0 unless given, and `send_host` is `send`. The
 * topology's costs are those without memory.recompute: what a stage recomputes is added to
 * backward_input, by its flops in proportion to those of F.
 *
 * B costs as much as I and W, less the work that I and W both do: that part of backward_weight
 * which its flops are of the flops of W. Only a head that computes its logits in chunks
 * (model.loss_rows) has such work: I and W each compute the logits, since there is no memory to
 * keep them.
 *
 * What experts compute counts as that of costs.expert_imbalance times their balanced rows, where
 * costs follow from flops; bounds and useful work have balanced rows.
 *
 * After its last action a rank may still wait for the messages of a tied weight (struct pen_tie).
 * It has two gradients, of two stages. If these are on two ranks, the rank of the head sends its
 * gradient after its last action; the rank of the embedding adds both after its own last action,
 * runs the optimizer step and sends the new weight back. With clip_norm it first waits until every
 * rank has published its norms. In this model sums, norms and the optimizer step take no time, and
 * a message takes pen_send_cost() of its stage. So the step ends
 *
 *     send[0]               after the last action of the embedding's rank; with clip_norm, of any
 *     send[last] + send[0]  after the last action of the head's rank
 *
 * whichever is later: a constant for each rank. It counts for the makespan; the span is of actions
 * alone (docs/contracts.md section 8). */
#include "gen/model/recompute.h"
#include "gen/model/fused_loss.h"
#include "gen/model/op_signature.h"
#include "gen/timing/cost.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* A setting of one value for all stages, or one value a stage. */
static double cost_in_list(struct pen_reals list, uint32_t stage) {
  return list.count == 1 ? list.value[0] : list.value[stage];
}

static bool is_list(const struct pen_reals *list) { return list->count > 0 && !list->for_all; }

bool pen_costs_are_by_number(const struct pen_topology *t) {
  return is_list(&t->costs_forward) || is_list(&t->costs_backward_input) ||
         is_list(&t->costs_backward_weight) || is_list(&t->costs_send) ||
         is_list(&t->costs_send_host);
}

double pen_expert_flops(const struct pen_op_list *program) {
  double flops = 0;
  for (size_t i = 0; i < program->count; i++) {
    const struct pen_op *op = &program->op[i];
    if (op->kind == PEN_OP_EXPERTS || op->kind == PEN_OP_EXPERTS_DX)
      flops += pen_signature_flops(pen_signature_of(op->kind), op->dim);
  }
  return flops;
}

double pen_imbalance(const struct pen_topology *topology) {
  return topology->costs_expert_imbalance > 1 ? topology->costs_expert_imbalance - 1 : 0;
}

/* Adds what imbalance adds to the costs that follow from flops; `unit`: of a flop. */
static void add_imbalance(struct pen_stage_cost *cost, const struct pen_topology *topology,
                          const struct pen_graph *graph, const struct pen_reals given[3],
                          double unit) {
  double *const value[] = {&cost->forward, &cost->backward_input, &cost->backward_weight};
  for (int k = 0; k < 3; k++) {
    if (given[k].count) continue;
    cost->routed[k] = pen_imbalance(topology) * unit * pen_expert_flops(&graph->program[k]);
    *value[k] += cost->routed[k];
  }
}

struct pen_stage_cost *pen_costs_balanced(const struct pen_partition *partition,
                                          const struct pen_stage_cost *cost) {
  struct pen_stage_cost *balanced = pen_new(partition->stage_count, sizeof *balanced);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    struct pen_stage_cost *c = &balanced[s];
    *c = cost[s];
    c->forward -= c->routed[PEN_PROGRAM_F];
    c->backward_input -= c->routed[PEN_PROGRAM_I];
    c->backward_weight -= c->routed[PEN_PROGRAM_W];
    for (int p = 0; p <= PEN_PROGRAM_W; p++) c->routed[p] = 0;
  }
  return balanced;
}

struct pen_stage_cost pen_stage_cost_of(const struct pen_topology *topology,
                                        const struct pen_graph *graph, uint32_t s) {
  const struct pen_reals given[3] = {topology->costs_forward, topology->costs_backward_input,
                                     topology->costs_backward_weight};
  double value[3], unit = 1e-9, recomputed = pen_recomputed_flops(graph);
  for (int k = 0; k < 3; k++) {
    value[k] = pen_program_flops(&graph->program[k]) - (k == PEN_PROGRAM_I ? recomputed : 0);
    if (given[k].count && value[k] > 0) unit = cost_in_list(given[k], s) / value[k];
  }
  double part = value[PEN_PROGRAM_F] > 0 ? recomputed / value[PEN_PROGRAM_F] : 0;
  double shared = value[PEN_PROGRAM_W] > 0 ? pen_shared_flops(graph) / value[PEN_PROGRAM_W] : 0;
  for (int k = 0; k < 3; k++)
    value[k] = given[k].count ? cost_in_list(given[k], s) : value[k] * unit;
  double send = topology->costs_send.count ? cost_in_list(topology->costs_send, s) : 0;
  struct pen_stage_cost cost = {
      .forward = value[PEN_PROGRAM_F],
      .backward_input = value[PEN_PROGRAM_I] + part * value[PEN_PROGRAM_F],
      .backward_weight = value[PEN_PROGRAM_W],
      .send = send,
      .shared = shared * value[PEN_PROGRAM_W],
      .send_host =
          topology->costs_send_host.count ? cost_in_list(topology->costs_send_host, s) : send};
  add_imbalance(&cost, topology, graph, given, unit);
  return cost;
}

struct pen_stage_cost *pen_costs(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 struct pen_graph *const *graph) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    cost[s] = pen_stage_cost_of(topology, graph[s], s);
  return cost;
}

struct pen_stage_cost *pen_costs_on_ranks(const struct pen_partition *partition,
                                          const struct pen_stage_cost *cost) {
  struct pen_stage_cost *placed = pen_new(partition->stage_count, sizeof *placed);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    struct pen_stage_cost *c = &placed[s];
    *c = cost[s];
    if (!partition->speed) continue;
    const double factor = 1 / partition->speed[partition->rank_of[s]], *within = c->within;
    c->forward = within[PEN_PROGRAM_F] + (c->forward - within[PEN_PROGRAM_F]) * factor;
    c->backward_input =
        within[PEN_PROGRAM_I] + (c->backward_input - within[PEN_PROGRAM_I]) * factor;
    c->backward_weight =
        within[PEN_PROGRAM_W] + (c->backward_weight - within[PEN_PROGRAM_W]) * factor;
    c->shared *= factor;
    for (int p = 0; p <= PEN_PROGRAM_W; p++) c->routed[p] *= factor;
  }
  return placed;
}

double pen_useful_work(const struct pen_partition *partition, struct pen_graph *const *graph,
                       const struct pen_stage_cost *stage_cost) {
  struct pen_stage_cost *cost = pen_costs_balanced(partition, stage_cost);
  double work = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    const struct pen_stage_cost *c = &cost[s];
    double flops = pen_program_flops(&graph[s]->program[PEN_PROGRAM_F]),
           forward = c->forward - c->within[PEN_PROGRAM_F];
    double repeated = flops > 0 ? forward * pen_recomputed_flops(graph[s]) / flops : 0;
    /* F and B without their collectives. */
    work += forward + pen_backward_cost(c) - c->within[PEN_PROGRAM_B] - repeated;
  }
  pen_free(cost);
  return work * partition->microbatch_count;
}

double pen_useful_flops(const struct pen_partition *partition, struct pen_graph *const *graph) {
  double flops = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    const struct pen_op_list *program = graph[s]->program;
    flops += pen_program_flops(&program[PEN_PROGRAM_F]) +
             pen_program_flops(&program[PEN_PROGRAM_I]) - pen_recomputed_flops(graph[s]) +
             pen_program_flops(&program[PEN_PROGRAM_W]) - pen_shared_flops(graph[s]);
  }
  return flops * partition->microbatch_count;
}

double pen_speed_sum(const struct pen_partition *partition) {
  double sum = 0;
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    sum += partition->speed ? partition->speed[rank] : 1;
  return sum;
}

double pen_overlap_cost(const struct pen_topology *t) {
  return t->has_costs_overlap ? t->costs_overlap : -1;
}

const char *pen_cost_unit(const struct pen_topology *topology) {
  bool given = topology->costs_forward.count || topology->costs_backward_input.count ||
               topology->costs_backward_weight.count;
  return given ? "in the file's unit" : "in Gflop";
}

/* Of a rank of the first replica. */
static uint32_t host_of(const struct pen_partition *partition, uint32_t rank) {
  const struct pen_coordinates at = {.in = {[PEN_PIPELINE] = rank}};
  return partition->host_of ? partition->host_of[pen_number_of(partition, at, UINT32_MAX)] : 0;
}

double pen_send_cost(const struct pen_partition *partition, const struct pen_stage_cost *cost,
                     uint32_t stage, uint32_t rank) {
  uint32_t from = partition->rank_of[stage];
  if (from == rank) return 0;
  return host_of(partition, from) != host_of(partition, rank) ? cost[stage].send_host
                                                              : cost[stage].send;
}

uint32_t pen_message_stage(const struct pen_partition *partition, const struct pen_compute *action,
                           int step) {
  const bool forward = action->kind == PEN_F;
  const int64_t stage = (int64_t)action->stage + (forward ? step : -step);
  if (!forward && action->kind != PEN_B && action->kind != PEN_I) return PEN_NONE;
  if (stage < 0 || stage >= partition->stage_count) return PEN_NONE;
  return partition->rank_of[stage] != partition->rank_of[action->stage] ? (uint32_t)stage
                                                                        : PEN_NONE;
}

double *pen_tied_weight_tail(const struct pen_partition *partition,
                             const struct pen_training *training,
                             const struct pen_stage_cost *cost) {
  double *after = pen_new(partition->rank_count, sizeof *after);
  uint32_t last = partition->stage_count - 1, owner = partition->rank_of[0],
           head = partition->rank_of[last];
  if (!training->adds_tied_gradient || owner == head) return after;
  double value = pen_send_cost(partition, cost, 0, head);
  for (uint32_t rank = 0; training->waits_for_norm && rank < partition->rank_count; rank++)
    after[rank] = value;
  after[owner] = value;
  after[head] = pen_send_cost(partition, cost, last, owner) + value;
  return after;
}
