/* lower_bound.h: lower bounds of the makespan and the span, whatever the order of the actions. */
#ifndef PEN_LOWER_BOUND_H
#define PEN_LOWER_BOUND_H

#include "gen/timing/memory_budget.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

/* Lower bounds of one objective, proved in lower_bound.c; 0: none. */
struct pen_bound {
  double work;   /* of the busiest rank */
  double ends;   /* what runs on other ranks before a rank's first action and after its last */
  double chain;  /* the longest chain of dependent actions of one microbatch */
  double memory; /* how long a rank must be idle because of its memory limit */
  double greatest;
};

struct pen_bounds {
  struct pen_bound makespan, span; /* as struct pen_timing defines them */
};

struct pen_exchange_least;

/* The bounds of every order of the same actions, with the same pairs and the same split of
 * backwards; `exchange`: pen_exchange_least(), NULL: without collectives; `budget` NULL: without
 * limit. O(actions + stages). */
struct pen_bounds pen_bounds_of(const struct pen_order *order,
                                const struct pen_partition *partition,
                                const struct pen_training *training,
                                const struct pen_stage_cost *cost,
                                const struct pen_exchange_least *exchange, double overlap_cost,
                                const struct pen_budget *budget);

/* A bound adds the same costs in another order than the simulation: if it differs from a time only
 * by rounding, returns that time. */
static inline double pen_bound_rounded(double bound, double time) {
  double difference = time > bound ? time - bound : bound - time;
  return difference <= 1e-9 * time ? time : bound;
}

#endif
