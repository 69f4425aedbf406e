/* trial.c: the passes from the topology of a candidate to the time of its step; those of
 * gen/layout/draft.c without lowering and layout. */
#include "gen/model/model.h"
#include "gen/planner/trial.h"

#include "gen/base/arena.h"
#include "gen/layout/draft.h"
#include "gen/model/units.h"
#include "gen/schedule/schedule.h"

/* Whether two inner stages differ in the names and blocks of their values alone. */
static bool are_alike(const struct pen_stages *stages, uint32_t a, uint32_t b) {
  const struct pen_span *one = &stages->span[a], *other = &stages->span[b];
  const uint32_t count = one->past_last_block - one->first_block;
  bool alike = count == other->past_last_block - other->first_block;
  for (uint32_t n = 0; n < count && alike; n++)
    alike = stages->block[one->first_block + n].kind == stages->block[other->first_block + n].kind;
  return alike;
}

/* The graph of an earlier stage that is like this one, as this one's; NULL: there is none. */
static struct pen_graph *graph_of_alike(const struct pen_topology *topology,
                                        const struct pen_stages *stages, uint32_t stage,
                                        struct pen_graph *const *graph) {
  for (uint32_t s = stage; s-- > 1 && stage + 1 < stages->stage_count;)
    if (are_alike(stages, s, stage) &&
        pen_recompute_of(topology, s) == pen_recompute_of(topology, stage)) {
      struct pen_graph *copy = pen_new(1, sizeof *copy);
      *copy = *graph[s];
      copy->stage = stage;
      return copy;
    }
  return NULL;
}

/* As pen_graphs_of(); where neither names nor blocks count, those of an inner stage may be an
 * earlier one's. */
static struct pen_graph *const *graphs_of(const struct pen_topology *topology,
                                          const struct pen_stages *stages, bool by_name) {
  struct pen_graph **graph = pen_new(stages->stage_count, sizeof *graph);
  for (uint32_t s = 0; s < stages->stage_count; s++) {
    graph[s] = by_name ? NULL : graph_of_alike(topology, stages, s, graph);
    if (graph[s]) continue;
    graph[s] = pen_stage_graph(topology, stages, s, true);
    pen_stage_programs(graph[s]);
  }
  return graph;
}

struct pen_trial pen_trial_costs(const struct pen_topology *topology,
                                 const struct pen_measured *measured) {
  if (measured) pen_measured_check(measured, topology);
  const struct pen_partition *partition = pen_divide(topology, NULL);
  const bool by_name = measured || topology->model_frozen.count; /* weights of each block */
  struct pen_graph *const *graph = graphs_of(topology, &partition->stages, by_name);
  const struct pen_cost_model cost = pen_cost_model(topology, partition, graph, measured);
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
