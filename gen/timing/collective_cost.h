/* collective_cost.h: the bytes and costs of the collectives of each stage. */
#ifndef PEN_COLLECTIVE_COST_H
#define PEN_COLLECTIVE_COST_H

#include <stdint.h>

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* The kinds of actions that are collectives and move bytes: REDUCE_SCATTER, ALL_GATHER_GRAD,
 * ALL_GATHER_WEIGHT, UNSHARD. */
enum { PEN_COLLECTIVES = PEN_UNSHARD - PEN_REDUCE_SCATTER + 1 };

static inline int pen_collective_index(int kind) { return kind - PEN_REDUCE_SCATTER; }

/* The collectives of one kind within a program: of the replicas' weights and gradients, which run
 * beside kernels, and exchanges of tensor ranks, for which kernels wait. */
struct pen_collectives_within {
  uint32_t calls; /* groups of ops */
  uint64_t sent;
  double cost;    /* of all of them */
  double exposed; /* by how much they lengthen the program */
};
enum { PEN_WITHIN_WEIGHTS, PEN_WITHIN_GRADIENTS, PEN_WITHIN_TENSOR, PEN_WITHIN };

/* The collectives of a stage, by pen_collective_index(). */
struct pen_collective_cost {
  struct pen_collectives_within within[PEN_PROGRAMS][PEN_WITHIN];
  double cost[PEN_COLLECTIVES];   /* on the stage's rank, in the unit of struct pen_stage_cost */
  uint64_t sent[PEN_COLLECTIVES]; /* bytes that the stage's rank of replica 0 sends in one call */
};

static inline double pen_collective_cost_of(const struct pen_collective_cost *cost, uint32_t stage,
                                            int kind) {
  return cost[stage].cost[pen_collective_index(kind)];
}

/* [stage]; NULL with one replica of one tensor rank. The costs are those of costs.reduce and
 * costs.gather, or the bytes that the replicas' ranks of the stage send to each other at the cost
 * of a byte. `cost` gives the cost of a flop, for the defaults. They depend on where the partition
 * places the stages.
 */
struct pen_collective_cost *pen_collective_costs(const struct pen_topology *topology,
                                                 const struct pen_partition *partition,
                                                 struct pen_graph *const *graph,
                                                 const struct pen_stage_cost *cost);

/* The cost of a byte within and between hosts; and of an exchange of tensor ranks by its bytes, if
 * that was measured, else NULL. */
struct pen_byte_cost {
  double within, between;
  const struct pen_measured_links *exchanges;
};

struct pen_byte_cost pen_byte_cost_of(const struct pen_topology *topology,
                                      const struct pen_partition *partition,
                                      struct pen_graph *const *graph,
                                      const struct pen_stage_cost *cost);

/* What an exchange takes between so many tensor ranks, which are on one host, and each of which
 * sends so many bytes. */
double pen_exchange_cost(uint32_t tensor_ranks, double sent, const struct pen_byte_cost *byte);

/* What the exchanges of tensor ranks in a program take, for which its kernels wait. */
double pen_exchanges_cost(const struct pen_graph *graph, int program,
                          const struct pen_byte_cost *byte);

/* Adds the collectives within the programs to the costs of the actions. */
void pen_add_collectives_within(const struct pen_topology *topology,
                                const struct pen_partition *partition,
                                struct pen_graph *const *graph, struct pen_stage_cost *cost);

#endif
