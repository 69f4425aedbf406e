/* planner.h: penstock-plan chooses the settings of a cluster: replicas, ranks, stages, microbatch,
 * schedule, cut, recomputation and sharding.
 *
 * In: a topology with a group `plan`. Out: the candidates with the shortest steps that fit.
 *
 *   axes.c        the values of every axis (axes.def); which combinations are candidates
 *   cuts.c        what pipelines with the same stages share (cut.c)
 *   candidates.c  the list of candidates
 *   attempts.c    passes that may refuse a candidate
 *   trial.c       the passes from a candidate to its time
 *   bounds.c      what no candidate of a pipeline can beat, in time and in memory
 *   best_first.c  the search over all candidates, by their bounds
 *   refine.c      the best candidates again, with the schedule search
 *   reason.c      why a candidate is slower than the first; why the first is the first
 *   print_*.c     the result as table, JSON, chart; write_topology.c as a topology
 */
#ifndef PEN_PLANNER_H
#define PEN_PLANNER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/planner/axes.h"
#include "gen/planner/options.h"
#include "gen/timing/measured_cost.h"

struct pen_planner {
  const struct pen_plan_options *options;
  const struct pen_topology *written; /* what the file and -s set */
  const struct pen_axes *axes;
  const struct pen_measured *measured; /* the file of --costs; NULL: none */
  uint64_t memory_bytes;               /* plan.memory_mib */
  bool on_terminal;                    /* standard error */
};

/* Where the time of a step goes; their sum is the step. */
struct pen_time_parts {
  double work;        /* of the average rank: differs between candidates by recomputation */
  double imbalance;   /* by how much the busiest rank has more work than the average */
  double collectives; /* by how much they lengthen the step, and NORM and UPDATE of the average
                         rank: both depend on how the replicas share */
  double bubble;      /* the rest of the time in which the busiest rank waits */
};

/* A candidate that fits. */
struct pen_plan_candidate {
  struct pen_choice choice;
  uint64_t index; /* in the order of all candidates */
  double makespan;
  double step;          /* with NORM and UPDATE, where the costs have them; else the makespan */
  uint64_t arena_bytes; /* the most of a rank */
  double bubble;        /* of the span */
  double idle;          /* of the makespan: the mean over the ranks */
  struct pen_time_parts parts;
  const char *reason; /* why it is not the first; NULL: it is */
  bool searched;      /* its order is that of the schedule "search" */
};

struct pen_plan_result {
  uint64_t total, evaluated;
  struct pen_plan_candidate *best; /* [count], the best first */
  size_t count;
  double others_least; /* no candidate that is not among the best has a shorter step; infinity: none
                          fits */
  const char *because; /* a sentence: why the first is the first */
  const char *unit;    /* of times, as in "in ms" */
  bool is_measured;    /* times are in ms */
};

#endif
