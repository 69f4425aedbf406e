/* cost_model.c: the costs of a plan: from the topology, or measured (--costs). */
#include "gen/timing/cost_model.h"

#include <math.h>

#include "gen/base/error.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/cost.h"

struct pen_cost_model pen_cost_model(const struct pen_topology *topology,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph,
                                     const struct pen_measured *measured) {
  struct pen_cost_model model;
  struct pen_stage_cost *cost = measured ? NULL : pen_costs(topology, partition, graph);
  if (cost) pen_add_collectives_within(topology, partition, graph, cost);
  if (measured && measured->version >= 2) /* those of version 1 have them within the actions */
    pen_add_collectives_within(measured->collectives ? measured->collectives : topology, partition,
                               graph, measured->cost);
  if (measured)
    model = (struct pen_cost_model){.stage = measured->cost,
                                    .overlap = measured->overlap,
                                    .unit = "in ms",
                                    .path = measured->path,
                                    .error_status = PEN_EXIT_DATA,
                                    .has_step = measured->version >= 2,
                                    .update_element = measured->update_element,
                                    .norm_element = measured->norm_element};
  else
    model = (struct pen_cost_model){.stage = cost,
                                    .overlap = pen_overlap_cost(topology),
                                    .unit = pen_cost_unit(topology),
                                    .path = topology->path,
                                    .error_status = PEN_EXIT_TOPOLOGY};
  model.topology = measured && measured->collectives ? measured->collectives : topology;
  model.graph = graph;
  return model;
}

struct pen_collective_cost *pen_cost_model_collectives(const struct pen_cost_model *cost,
                                                       const struct pen_partition *partition) {
  return pen_collective_costs(cost->topology, partition, cost->graph, cost->stage);
}

struct pen_timing *pen_cost_model_time(const struct pen_cost_model *cost,
                                       const struct pen_order *order,
                                       const struct pen_partition *partition,
                                       const struct pen_training *training, int profile_kind,
                                       bool given) {
  const struct pen_collective_cost *collective = pen_cost_model_collectives(cost, partition);
  struct pen_timing *timing =
      pen_simulate_step(order, partition, training, pen_costs_on_ranks(partition, cost->stage),
                        collective, cost->overlap, profile_kind, given);
  if (timing->complete && !isfinite(timing->makespan)) pen_cost_model_fail(cost);
  return timing;
}

void pen_cost_model_fail(const struct pen_cost_model *cost) {
  pen_stop(cost->error_status, "%s: costs: the predicted time of the step is infinite", cost->path);
}
