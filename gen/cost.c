/* cost.c: what an action of each stage is assumed to cost: the topology's figures, or floating-point operations.
 *
 * Where the topology gives some costs of a stage and not others, the missing ones are in proportion to their flops. Without any
 * figure the unit is 10^9 floating-point operations. `send` is 0 unless given. All that is without memory.recompute: what a stage runs
 * again is added to its backward_input (which a fused B has too), as large a part of its forward as its operations are of F's. */
#include "gen/cost.h"

static double listed(struct pen_reals list, uint32_t stage) {
  return list.count == 1 ? list.value[0] : list.value[stage];
}

struct pen_stage_cost *pen_costs(const struct pen_topology *topology, const struct pen_partition *partition,
                                 struct pen_graph *const *graph) {
  const struct pen_reals given[3] = {topology->costs_forward, topology->costs_backward_input, topology->costs_backward_weight};
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    double value[3], unit = 1e-9, again = pen_again_flops(graph[s]);
    for (int k = 0; k < 3; k++) {
      value[k] = pen_program_flops(&graph[s]->program[k]) - (k == PEN_PROGRAM_I ? again : 0);
      if (given[k].count && value[k] > 0) unit = listed(given[k], s) / value[k];
    }
    double part = value[PEN_PROGRAM_F] > 0 ? again / value[PEN_PROGRAM_F] : 0;
    for (int k = 0; k < 3; k++) value[k] = given[k].count ? listed(given[k], s) : value[k] * unit;
    cost[s] = (struct pen_stage_cost){value[PEN_PROGRAM_F], value[PEN_PROGRAM_I] + part * value[PEN_PROGRAM_F], value[PEN_PROGRAM_W],
                                      topology->costs_send.count ? listed(topology->costs_send, s) : 0};
  }
  return cost;
}

const char *pen_cost_unit(const struct pen_topology *topology) {
  bool given = topology->costs_forward.count || topology->costs_backward_input.count || topology->costs_backward_weight.count;
  return given ? "in the file's unit" : "in Gflop";
}
