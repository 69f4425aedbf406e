/* cost.h: the costs of compute actions and messages by the topology. */
#ifndef PEN_COST_H
#define PEN_COST_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* [stage]: from the topology's `costs` group and the flops of the programs. */
struct pen_stage_cost *pen_costs(const struct pen_topology *topology,
                                 const struct pen_partition *partition,
                                 struct pen_graph *const *graph);

/* The same of one stage; `number`: in lists with one value a stage. */
struct pen_stage_cost pen_stage_cost_of(const struct pen_topology *topology,
                                        const struct pen_graph *graph, uint32_t number);

/* Whether `costs` has a list with one value a stage. */
bool pen_costs_are_by_number(const struct pen_topology *topology);

/* The floating-point operations of experts in a program, with balanced routes. */
double pen_expert_flops(const struct pen_op_list *program);

/* What costs.expert_imbalance adds to a time of experts, as a part of it. */
double pen_imbalance(const struct pen_topology *topology);

/* A copy with balanced routes, for bounds. */
struct pen_stage_cost *pen_costs_balanced(const struct pen_partition *partition,
                                          const struct pen_stage_cost *cost);

/* A copy with the costs of each rank's stages, except collectives within them, divided by its
 * speed (cluster.speed). */
struct pen_stage_cost *pen_costs_on_ranks(const struct pen_partition *partition,
                                          const struct pen_stage_cost *cost);

/* F, I and W of all actions at speed 1, without what is computed a second time (memory.recompute,
 * model.loss_rows) and without collectives; F alone where nothing trains. */
double pen_useful_work(const struct pen_partition *partition, struct pen_graph *const *graph,
                       const struct pen_stage_cost *cost);

/* The same in floating-point operations, of a step of a replica's stages. */
double pen_useful_flops(const struct pen_partition *partition, struct pen_graph *const *graph);

/* The sum of the ranks' speeds: the most work that they do in a unit of time. */
double pen_speed_sum(const struct pen_partition *partition);

/* costs.overlap: the cost of a pair a|b; below 0: not set, the sum of both. */
double pen_overlap_cost(const struct pen_topology *topology);

/* "in Gflop" or "in the file's unit". */
const char *pen_cost_unit(const struct pen_topology *topology);

/* The time that a message of `stage` takes to `rank`: 0 on the stage's own rank, send to a rank of
 * the same host, else send_host. `cost` is [stage]. */
double pen_send_cost(const struct pen_partition *partition, const struct pen_stage_cost *cost,
                     uint32_t stage, uint32_t rank);

/* The stage on another rank to which the message of an action goes, by `step` 1, or from which one
 * comes, by -1; PEN_NONE: there is none. */
uint32_t pen_message_stage(const struct pen_partition *partition, const struct pen_compute *action,
                           int step);

/* [rank]: the least time from the end of its last action to the end of a training step. */
double *pen_tied_weight_tail(const struct pen_partition *partition,
                             const struct pen_training *training,
                             const struct pen_stage_cost *cost);

#endif
