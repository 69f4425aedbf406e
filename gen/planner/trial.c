/* trial.c: the passes from the topology of a candidate to the time of its step; those of
 * gen/pipeline.c without lowering and layout. */
#include "gen/model/model.h"
#include "gen/planner/trial.h"

#include "gen/base/error.h"
#include "gen/pipeline.h"
#include "gen/schedule/schedule.h"
#include "gen/timing/measured_cost.h"
#include "gen/model/pieces.h"

/* The trained and frozen elements of a stage, as a file of measured costs counts them. */
static uint64_t parameters_of(const struct pen_graph *graph) {
  uint64_t count = 0;
  for (uint32_t w = 0; w < graph->weight_count; w++)
    if (w != graph->tied && pen_graph_has_weight(graph, w)) count += graph->weight[w].count;
  return count;
}

/* Refuses a candidate that the file was not measured for. */
static const struct pen_measured *read_measured(const struct pen_topology *topology,
                                                const char *costs,
                                                const struct pen_partition *partition,
                                                struct pen_graph *const *graph) {
  const struct pen_measured *measured = pen_measured_read(costs, partition, graph);
  if (measured->version != 1) return measured; /* its blocks are for any cut */
  bool fits = measured->microbatch == topology->batch_microbatch;
  for (uint32_t s = 0; s < partition->stage_count; s++)
    fits = fits && measured->recompute[s] == graph[s]->recompute &&
           measured->parameters[s] == parameters_of(graph[s]);
  if (!fits)
    pen_stop(PEN_EXIT_DATA,
             "%s: no candidate has the stages, the microbatch and the recomputation that were "
             "measured",
             costs);
  return measured;
}

struct pen_trial pen_trial_costs(const struct pen_topology *topology, const char *costs) {
  const struct pen_partition *partition = pen_pipeline_partition(topology);
  struct pen_graph *const *graph = pen_graphs_of(topology, &partition->stages, true);
  const struct pen_measured *measured =
      costs ? read_measured(topology, costs, partition, graph) : NULL;
  return (struct pen_trial){.topology = topology,
                            .partition = partition,
                            .graph = graph,
                            .training = pen_training_of(topology, partition, graph),
                            .is_measured = costs != NULL,
                            .cost = pen_cost_model(topology, partition, graph, measured)};
}

void pen_trial_compose(struct pen_trial *trial) {
  trial->order = pen_compose(trial->topology, trial->partition);
}

const struct pen_timing *pen_trial_time(const struct pen_trial *trial) {
  return pen_cost_model_time(&trial->cost, trial->order, trial->partition, trial->training,
                             PEN_TRAIN, false);
}
