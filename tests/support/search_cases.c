/* search_cases.c: random cases for tests of the schedule search. */
#include "tests/support/search_cases.h"

#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

struct pen_stage_cost *random_costs(const struct pen_partition *partition, uint64_t *seed,
                                    uint64_t most) {
  struct pen_stage_cost *cost = pen_new(partition->stage_count, sizeof *cost);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    cost[stage] = (struct pen_stage_cost){1 + (double)draw(seed, most),
                                          1 + (double)draw(seed, most),
                                          (double)draw(seed, most),
                                          0.25 * (double)draw(seed, most),
                                          0,
                                          0,
                                          {0},
                                          {0}};
  uint32_t last = partition->stage_count - 1; /* the one that may have a head by chunks */
  if (most % 2 == 0) cost[last].shared = 0.5 * cost[last].backward_weight;
  return cost;
}

double random_live_backward(uint64_t *seed) {
  static const double backwards[] = {0, 0.5, 1, 2};
  return backwards[draw(seed, sizeof backwards / sizeof *backwards)];
}

struct pen_topology *search_topology(enum pen_objective objective, double limit, double backward,
                                     double weight) {
  struct pen_topology *topology = make_topology("search", 0, false);
  topology->pipeline_objective = objective;
  topology->pipeline_placement = PEN_PLACEMENT_LOOP;
  topology->has_pipeline_live_limit = limit > 0;
  topology->pipeline_live_limit = limit;
  topology->costs_live_backward = backward;
  topology->has_costs_live_weight = true;
  topology->costs_live_weight = weight;
  return topology;
}

struct pen_search *search_placed(struct pen_topology *topology, struct pen_partition *partition,
                                 const struct pen_stage_cost *cost, bool zigzag, uint64_t seconds,
                                 uint64_t seed) {
  struct pen_search_effort effort = {seconds, seed};
  topology->has_pipeline_placement = true;
  topology->pipeline_placement = zigzag ? PEN_PLACEMENT_V : PEN_PLACEMENT_LOOP;
  return search_order(topology, partition, cost, &effort);
}

double search_goal(const struct pen_topology *topology, const struct pen_timing *timing) {
  return topology->pipeline_objective == PEN_OBJECTIVE_SPAN ? timing->span : timing->makespan;
}
