/* output.h: what --print shows, and where it goes. */
#ifndef PEN_OUTPUT_H
#define PEN_OUTPUT_H

#include "gen/timing/measured_cost.h"
#include "gen/options.h"
#include "gen/search/search.h"
#include "gen/model/tensor_shapes.h"
#include "gen/partition/partition.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/timing/gradient_exchange.h"
#include "gen/lower/lower.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

/* Everything that the last pass may show. */
struct pen_result {
  struct pen_topology *topology;
  struct pen_partition *partition;
  const struct pen_training *training;
  struct pen_shapes shapes;
  const struct pen_stage_cost *cost;
  const struct pen_collective_cost *exchange_cost; /* [stage] */
  const struct pen_measured *measured;             /* null: costs are the topology's */
  const struct pen_order *order;
  const struct pen_timing *timing;
  struct pen_graph **own;    /* [stage] of the topology's own profile */
  struct pen_graph **eval;   /* [stage] of eval: the same where nothing is trained */
  struct pen_result *shape;  /* [topology->shapes_sequence.count] rows of further shapes; their plan
                                is this one's */
  struct pen_search *search; /* null: the order is not searched for */
  const struct pen_lowered *lowered;
  struct pen_plan *plan; /* null: the rows did not pass */
};

/* What a pair a|b takes; below 0 the sum. */
double pen_overlap_of(const struct pen_result *result);

/* The unit of the costs, as in "in ms". */
const char *pen_unit_of(const struct pen_result *result);

/* Ends the generator (64) where a file that it is to write is one that it reads. Comes before
 * anything is written. */
void pen_output_check(const struct pen_topology *topology, const struct pen_options *options);

/* Prints what the options ask for, to standard output or to their file, which is whole or not
 * there. Fails (73, 74). */
void pen_output(const struct pen_result *result, const struct pen_options *options);

/* Rows that are refused, with no plan: when it is their model that is asked for, and a deadlock is
 * all that is wrong with them, prints the model, so that SPIN can be asked too. */
void pen_output_deadlock(const struct pen_result *result, const struct pen_options *options);

/* Writes make's dependencies: `target: sources`, and an empty rule for each source, so that make
 * does not fail when one is removed. Fails (73, 74). */
void pen_output_dependencies(const struct pen_topology *topology, const char *target,
                             const char *path);

/* Writes what the link of a plan needs, `device transport`. Fails (73, 74). */
void pen_output_link(const struct pen_plan *plan, const char *path);

#endif
