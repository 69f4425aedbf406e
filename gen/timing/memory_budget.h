/* memory_budget.h: what a rank may hold at once, and what each action adds to it: for the search
 * and for lower bounds. */
#ifndef PEN_MEMORY_BUDGET_H
#define PEN_MEMORY_BUDGET_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/topology/topology.h"

/* Of one action, in bytes or in the unit of pipeline.live_limit. */
struct pen_hold {
  double peak;    /* most that it adds while it runs to what its rank held before; not negative */
  double remains; /* what it adds when it ends, or (below 0) frees */
};

struct pen_budget {
  bool limited;   /* false: all limits are infinite, all holds 0 */
  bool estimated; /* in bytes: the layout may need more or less, so it proves nothing
                   */
  double *limit;  /* [rank], inclusive */
  struct pen_hold (*hold)[PEN_PROGRAMS]; /* [stage][F, I, W, B] */
  double *whole; /* [stage] the part of every peak that is weights gathered for that action alone;
                    null: nothing */
};

/* No limit. */
struct pen_budget *pen_budget_none(uint32_t rank_count, uint32_t stage_count);

/* `limit` a rank; a stage and microbatch holds `backward` from the start of F to the end of I or B,
 * then `weight`, [stage], to the end of W. */
struct pen_budget *pen_budget_live(uint32_t rank_count, uint32_t stage_count, double limit,
                                   double backward, const double *weight);

/* Whether an order keeps within the budget at every action. */
bool pen_budget_holds(const struct pen_budget *budget, const struct pen_order *order);

/* Whether a stage's B adds less at its most than I and the W right after it. */
bool pen_budget_prefers_whole(const struct pen_budget *budget, uint32_t stage);

/* Whether the rank's limit has no room for I and W of one microbatch of its stage, nothing else
 * held. */
bool pen_budget_forces_whole(const struct pen_budget *budget, uint32_t rank, uint32_t stage);

/* What one stage needs at least, if everything else were done before: the most over F and its
 * backward, split or whole. */
double pen_budget_least(const struct pen_budget *budget, uint32_t stage);

#endif
