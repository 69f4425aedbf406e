/* bound_terms.h: the terms of the lower bounds: sums over the actions, and paths between stages. */
#ifndef PEN_BOUND_TERMS_H
#define PEN_BOUND_TERMS_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/timing/collectives.h"
#include "gen/timing/memory_budget.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"

/* The least costs of a stage's actions, whatever their order, and how many there are. */
struct pen_stage_least {
  double forward, backward; /* backward: I or B */
  double weight;            /* 0 unless every microbatch of the stage has a W */
  double forward_sum, backward_sum;
  uint32_t weights;
  bool has_backward;
};

/* Sums over the actions of a rank; a pair counts once. */
struct pen_rank_sum {
  double work, critical;    /* critical: without W */
  double exchange, reduce;  /* the collectives of its stages; those after the gradients */
  uint32_t lowest, highest; /* of its stages */
  bool any, weights;
};

struct pen_bound_terms {
  const struct pen_order *order;
  const struct pen_partition *partition;
  const struct pen_stage_cost *cost;
  const struct pen_exchange_least *exchange; /* [stage] or NULL */
  double overlap_cost;                       /* below 0: no pairs */
  const struct pen_budget *budget;           /* or NULL */
  struct pen_stage_least *least;             /* [stage] */
  struct pen_rank_sum *sum;                  /* [rank] */
  double *after;                             /* [rank] pen_tied_weight_tail() */
  double *before; /* [stage] from the first F of stage 0 to its first F */
  double *start;  /* [stage] from the start of the step to its first F */
  double *down;   /* [stage] from the start of its F to the end of the last stage's */
  double *back;   /* [stage] from the end of its backward to the end of stage 0's */
  uint32_t *next; /* [stage] the next stage of its rank, or PEN_NONE */
};

struct pen_bound_terms pen_bound_terms_of(const struct pen_order *order,
                                          const struct pen_partition *partition,
                                          const struct pen_training *training,
                                          const struct pen_stage_cost *cost,
                                          const struct pen_exchange_least *exchange,
                                          double overlap_cost, const struct pen_budget *budget);

/* What follows the last backward of a stage. */
static inline double pen_bound_exchange_after(const struct pen_bound_terms *b, uint32_t stage) {
  return b->exchange && b->least[stage].has_backward ? b->exchange[stage].after : 0;
}

/* From the start of F of stage `from` until I of stage `to` can start for the same microbatch. */
static inline double pen_bound_round_trip(const struct pen_bound_terms *b, uint32_t from,
                                          uint32_t to) {
  uint32_t last = b->partition->stage_count - 1;
  return b->down[from] + (to == last ? 0
                                     : b->least[last].backward + b->back[last] - b->back[to] -
                                           b->least[to].backward);
}

#endif
