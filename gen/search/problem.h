/* problem.h: the search problem as numbers; lists of cells and orders. */
#ifndef PEN_SEARCH_PROBLEM_H
#define PEN_SEARCH_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/collectives.h"
#include "gen/timing/memory_budget.h"
#include "gen/timing/timing.h"

/* The kinds of cells: F, I and W of a stage, in this order. */
enum { PEN_SEARCH_KINDS = 3 };

/* F, I, W or B of one stage. */
struct pen_search_type {
  double cost,
      send; /* send: from its end to its use by the next stage (F) or the previous one (I, B) */
  double beyond; /* of a W: what it and its I take longer than B; counts as idle time of the rank */
  struct pen_hold hold;
  uint32_t consumer; /* the rank of that stage, or PEN_NONE */
};

/* One action. */
struct pen_search_cell {
  uint32_t type, need; /* need: the cell of another stage whose result it needs; cell_count: none */
};

/* The search problem. All microbatches of a stage cost the same, so the n-th F (I, W) of a stage is
 * always that of microbatch n: another order of them is no better (see search.c). Indices: type =
 * kind * stages + stage, cell = type * microbatches + microbatch.
 *
 * Lists of cells, [rank][count], are the order of each rank. If the W of a stage and microbatch is
 * in no list, its I means B, and the rank's list is filled up with PEN_NONE at the end. */
struct pen_search_problem {
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_stage_cost *stage_cost;
  const struct pen_stage_cost
      *least_cost; /* for bounds: the same, with W at the cost that it adds to B */
  const struct pen_collective_cost *collective_cost; /* [stage]; NULL: no replicas */
  const struct pen_exchange_least *exchange;         /* [stage], for bounds; NULL likewise */
  double overlap_cost; /* of pairs in named schedules; the search has no pairs */
  const struct pen_budget *budget;
  bool by_span; /* the objective: false is the makespan */
  uint32_t rank_count, stage_count, stages_per_rank, microbatch_count;
  uint32_t count; /* actions of a rank */
  uint32_t cell_count;
  const uint32_t *stages;             /* [rank][stages_per_rank] ascending */
  const struct pen_search_type *type; /* [type], kinds as PEN_PROGRAM_F ... PEN_PROGRAM_B */
  const struct pen_search_cell *cell; /* [cell], with every backward split */
  const bool *whole; /* [stage] B holds less, or takes less time, than I and W: otherwise it is
                        never better (see search.c) */
  bool any_whole;
  const double *work; /* [rank] least sum of its actions' costs, with B where it shares something */
  /* [rank] in the makespan only: the time before its first action, and after its last:
   * pen_tied_weight_tail() and the collectives of replicas, as if all came last, except for the
   * UNSHARD of its first stage. Where they really come, pen_search_time() knows. */
  const double *before, *after;
};

struct pen_search_problem *pen_search_problem(const struct pen_partition *partition,
                                              const struct pen_training *training,
                                              const struct pen_stage_cost *cost,
                                              const struct pen_collective_cost *collective_cost,
                                              double overlap_cost, const struct pen_budget *budget,
                                              bool by_span);

/* Simulates an order, with the collectives of the replicas; `overlap_cost` as pen_simulate(). */
struct pen_timing *pen_search_time(const struct pen_search_problem *search,
                                   const struct pen_order *order, double overlap_cost);

/* The cell of a kind, stage and microbatch. */
static inline uint32_t pen_search_cell_of(const struct pen_search_problem *search, uint32_t kind,
                                          uint32_t stage, uint32_t microbatch) {
  return (kind * search->stage_count + stage) * search->microbatch_count + microbatch;
}

/* Lists of cells as an order; and an order, with any splits and pairs, as lists of cells: a B stays
 * whole only if the stage is in `whole`. */
struct pen_order *pen_search_order(const struct pen_search_problem *search, const uint32_t *list);
void pen_search_lists(const struct pen_search_problem *search, const struct pen_order *order,
                      uint32_t *list);

/* Merges an I and the W directly after it into a B if no action starts later and the limit allows
 * it. Returns the timing of the order. */
const struct pen_timing *pen_search_fuse(const struct pen_search_problem *search,
                                         struct pen_order *order, const struct pen_timing *timing);

#endif
