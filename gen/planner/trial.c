/* trial.c: the passes from the topology of a candidate to the time of its step; those of
 * gen/pipeline.c without lowering and layout. */
#include "gen/model/model.h"
#include "gen/planner/trial.h"

#include "gen/base/error.h"
#include "gen/pipeline.h"
#include "gen/schedule/schedule.h"

/* Refuses a candidate that costs of stages were not measured for. */
static void check_stages(const struct pen_measured *measured, const struct pen_topology *topology,
                         struct pen_graph *const *graph) {
  if (pen_measured_stages_difference(measured->stages, topology, graph).place)
    pen_stop(PEN_EXIT_DATA,
             "%s: no candidate has the stages, the microbatch and the recomputation that were "
             "measured",
             measured->path);
}

struct pen_trial pen_trial_costs(const struct pen_topology *topology,
                                 const struct pen_measured *measured) {
  if (measured) pen_measured_check(measured, topology);
  const struct pen_partition *partition = pen_pipeline_partition(topology);
  struct pen_graph *const *graph = pen_graphs_of(topology, &partition->stages, true);
  const struct pen_cost_model cost = pen_cost_model(topology, partition, graph, measured);
  if (measured && measured->stages) check_stages(measured, topology, graph);
  return (struct pen_trial){.topology = topology,
                            .partition = partition,
                            .graph = graph,
                            .training = pen_training_of(topology, partition, graph),
                            .is_measured = measured != NULL,
                            .cost = cost};
}

void pen_trial_compose(struct pen_trial *trial) {
  trial->order = pen_compose(trial->topology, trial->partition);
}

const struct pen_timing *pen_trial_time(const struct pen_trial *trial) {
  return pen_cost_model_time(&trial->cost, trial->order, trial->partition, trial->training,
                             PEN_TRAIN, false);
}
