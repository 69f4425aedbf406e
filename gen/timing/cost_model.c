/* cost_model.c: the costs of a plan: from the topology, or measured (--costs).
 *
 * A stage has costs by itself, by its blocks. Where a partition places it, measured messages and
 * collectives are added. */
#include "gen/timing/cost_model.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/timing/collective_cost.h"
#include "gen/timing/cost.h"

struct pen_stage_cost pen_cost_of_stage(const struct pen_cost_source *source,
                                        const struct pen_graph *graph, uint32_t number) {
  return source->measured ? pen_measured_blocks_cost(source->measured->blocks, graph)
                          : pen_stage_cost_of(source->topology, graph, number);
}

bool pen_cost_is_by_number(const struct pen_cost_source *source) {
  return !source->measured && pen_costs_are_by_number(source->topology);
}

static struct pen_cost_model measured_model(const struct pen_measured *measured) {
  return (struct pen_cost_model){.overlap = measured->overlap,
                                 .unit = "in ms",
                                 .path = measured->path,
                                 .error_status = PEN_EXIT_DATA,
                                 .update_element = measured->update_element,
                                 .norm_element = measured->norm_element,
                                 .peak_tflops = measured->peak_tflops};
}

static struct pen_cost_model topology_model(const struct pen_topology *topology) {
  return (struct pen_cost_model){.overlap = pen_overlap_cost(topology),
                                 .unit = pen_cost_unit(topology),
                                 .path = topology->path,
                                 .error_status = PEN_EXIT_TOPOLOGY};
}

struct pen_cost_model pen_cost_model_of(const struct pen_cost_source *source,
                                        const struct pen_partition *partition,
                                        struct pen_graph *const *graph,
                                        const struct pen_stage_cost *alone) {
  const struct pen_measured *measured = source->measured;
  struct pen_cost_model model =
      measured ? measured_model(measured) : topology_model(source->topology);
  struct pen_stage_cost *stage = pen_new(partition->stage_count, sizeof *stage);
  memcpy(stage, alone, partition->stage_count * sizeof *stage);
  model.source = *source;
  model.topology = source->topology;
  model.graph = graph;
  model.alone = alone;
  model.stage = stage;
  if (measured) {
    pen_measured_links_add(measured->links, partition, graph, stage);
    model.topology =
        pen_measured_links_topology(measured->links, source->topology, partition, graph);
  }
  pen_add_collectives_within(model.topology, partition, graph, stage);
  return model;
}

struct pen_cost_model pen_cost_model(const struct pen_topology *topology,
                                     const struct pen_partition *partition,
                                     struct pen_graph *const *graph,
                                     const struct pen_measured *measured) {
  const struct pen_cost_source source = {topology, measured};
  struct pen_stage_cost *alone = pen_new(partition->stage_count, sizeof *alone);
  for (uint32_t s = 0; s < partition->stage_count; s++)
    alone[s] = pen_cost_of_stage(&source, graph[s], s);
  return pen_cost_model_of(&source, partition, graph, alone);
}

struct pen_cost_model pen_cost_model_placed(const struct pen_cost_model *cost,
                                            const struct pen_partition *partition) {
  return pen_cost_model_of(&cost->source, partition, cost->graph, cost->alone);
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
