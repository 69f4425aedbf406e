/* memory_budget.h: the memory limit of each rank, and what each action allocates: for the search
 * and the lower bounds. */
#ifndef PEN_MEMORY_BUDGET_H
#define PEN_MEMORY_BUDGET_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"

/* What an action allocates, in bytes or in the unit of pipeline.live_limit. */
struct pen_hold {
  double peak;    /* the most while it runs, above what its rank held before; not negative */
  double remains; /* what is allocated (or, below 0, freed) after it */
};

struct pen_budget {
  bool limited;   /* false: all limits are infinite, all holds 0 */
  bool estimated; /* in bytes: the layout may need more or less, so it gives no proof */
  double *limit;  /* [rank], inclusive */
  struct pen_hold (*hold)[PEN_PROGRAMS]; /* [stage][F, I, W, B] */
  double *whole; /* [stage]: the part of every peak that is unsharded weights; NULL: none */
};

/* No limit. */
struct pen_budget *pen_budget_none(uint32_t rank_count, uint32_t stage_count);

/* The same limit for all ranks. A stage and microbatch holds `backward` from the start of F to the
 * end of I or B, then weight[stage] until the end of W. */
struct pen_budget *pen_budget_live(uint32_t rank_count, uint32_t stage_count, double limit,
                                   double backward, const double *weight);

/* The most that a rank holds at any action of an order. */
double pen_budget_peak(const struct pen_budget *budget, const struct pen_order *order,
                       uint32_t rank);

/* Whether an order keeps within the budget at every action. */
bool pen_budget_holds(const struct pen_budget *budget, const struct pen_order *order);

/* Whether the peak of a stage's B is lower than that of I and W, run one after the other. */
bool pen_budget_prefers_whole(const struct pen_budget *budget, uint32_t stage);

/* Whether I and W of a single microbatch of the stage exceed the rank's limit. */
bool pen_budget_forces_whole(const struct pen_budget *budget, uint32_t rank, uint32_t stage);

/* The least limit with which a stage can run one microbatch. */
double pen_budget_least(const struct pen_budget *budget, uint32_t stage);

#endif
