/* trial.h: the passes from the topology of a candidate to the time of its step. */
#ifndef PEN_TRIAL_H
#define PEN_TRIAL_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/cost_model.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

struct pen_trial {
  const struct pen_topology *topology;
  const struct pen_partition *partition;
  struct pen_graph *const *graph; /* [stage] of training */
  const struct pen_training *training;
  struct pen_cost_model cost;
  const struct pen_order *order;
  bool is_measured; /* the costs are those of a file */
};

/* The costs of a topology with a named schedule; `measured`: the file of --costs, or NULL. Without
 * order. Fails (78, 65). */
struct pen_trial pen_trial_costs(const struct pen_topology *topology,
                                 const struct pen_measured *measured);

/* Composes the order. Fails (78). */
void pen_trial_compose(struct pen_trial *trial);

/* The simulated step, as penstock-gen simulates it. */
const struct pen_timing *pen_trial_time(const struct pen_trial *trial);

#endif
