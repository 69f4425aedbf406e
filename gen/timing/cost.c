/* cost.c: what an action of each stage is assumed to cost: the topology's figures, or
 * floating-point operations.
 *
 * Where the topology gives some costs of a stage and not others, the missing ones are in proportion
 * to their flops. Without any figure the unit is 10^9 floating-point operations. `send` is 0 unless
 * given. All that is without memory.recompute: what a stage runs again is added to its
 * backward_input (which a fused B has too), as large a part of its forward as its operations are of
 * F's.
 *
 * B costs what I and W do, less what both do when they are apart and B does once: as large a part
 * of backward_weight as its operations are of W's. Where the head makes its logits by chunks
 * (model.loss_rows), I and W each make them, for there is no room to keep them; any other stage
 * shares nothing.
 *
 * The exchange between replicas moves bytes. A replica's share of n elements over R replicas is
 * n/R: to sum it reads R arrays and writes one, (R+1) n/R elements; to gather the others' it reads
 * and writes 2 n/R. One element counts as ELEMENT_FLOPS operations: a core that multiplies
 * and adds at 100 Gflop/s moves about 10 Gbyte/s to and from memory. */
#include "gen/model/recompute.h"
#include "gen/model/fused_loss.h"
#include "gen/timing/cost.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "gen/topology/topology.h"

enum { ELEMENT_FLOPS = 40 };

static double listed(struct pen_reals list, uint32_t stage) {
  return list.count == 1 ? list.value[0] : list.value[stage];
}

struct pen_stage_cost *pen_costs(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 struct pen_graph *const *graph) {
  const struct pen_reals given[3] = {topology->costs_forward, topology->costs_backward_input,
                                     topology->costs_backward_weight};
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    double value[3], unit = 1e-9, again = pen_recomputed_flops(graph[s]);
    for (int k = 0; k < 3; k++) {
      value[k] = pen_program_flops(&graph[s]->program[k]) - (k == PEN_PROGRAM_I ? again : 0);
      if (given[k].count && value[k] > 0) unit = listed(given[k], s) / value[k];
    }
    double part = value[PEN_PROGRAM_F] > 0 ? again / value[PEN_PROGRAM_F] : 0;
    double shared =
        value[PEN_PROGRAM_W] > 0 ? pen_shared_flops(graph[s]) / value[PEN_PROGRAM_W] : 0;
    for (int k = 0; k < 3; k++) value[k] = given[k].count ? listed(given[k], s) : value[k] * unit;
    cost[s] = (struct pen_stage_cost){
        value[PEN_PROGRAM_F], value[PEN_PROGRAM_I] + part * value[PEN_PROGRAM_F],
        value[PEN_PROGRAM_W], topology->costs_send.count ? listed(topology->costs_send, s) : 0,
        shared * value[PEN_PROGRAM_W]};
  }
  return cost;
}

/* What one floating-point operation of a stage costs, by its forward. */
static double unit_of(const struct pen_graph *graph, const struct pen_stage_cost *cost) {
  double flops = pen_program_flops(&graph->program[PEN_PROGRAM_F]);
  return flops > 0 ? cost->forward / flops : 0;
}

struct pen_collective_cost *pen_collective_costs(const struct pen_topology *topology,
                                                 const struct pen_partition *partition,
                                                 struct pen_graph *const *graph,
                                                 const struct pen_stage_cost *cost) {
  struct pen_collective_cost *exchange = pen_new(partition->stage_count, sizeof *exchange);
  double replicas = partition->replica_count > 1 ? partition->replica_count : 1;
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    double elements = 0, unit = unit_of(graph[s], &cost[s]) * ELEMENT_FLOPS;
    for (size_t w = 0; w < graph[s]->weight_count; w++)
      if (!graph[s]->weight[w].frozen && w != graph[s]->tied)
        elements += (double)graph[s]->weight[w].count;
    exchange[s].reduce = topology->costs_reduce.count ? listed(topology->costs_reduce, s)
                                                      : unit * elements * (replicas + 1) / replicas;
    exchange[s].gather = topology->costs_gather.count
                             ? listed(topology->costs_gather, s)
                             : unit * elements * 2 * (replicas - 1) / replicas;
  }
  return exchange;
}

const char *pen_cost_unit(const struct pen_topology *topology) {
  bool given = topology->costs_forward.count || topology->costs_backward_input.count ||
               topology->costs_backward_weight.count;
  return given ? "in the file's unit" : "in Gflop";
}
