/* problem.h: what is searched, as numbers; lists of cells and orders. */
#ifndef PEN_SEARCH_PROBLEM_H
#define PEN_SEARCH_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/memory_budget.h"
#include "gen/timing/timing.h"

/* F, I and W of one stage, in this order: the kinds of cells. */
enum { PEN_SEARCH_KINDS = 3 };

/* F, I, W or B of one stage. */
struct pen_search_type {
  double cost,
      send;      /* send: from its end to its use by the next stage (F) or the one before (I, B) */
  double beyond; /* of a W: what it and its I take more than B does; counted as if the rank were
                    idle */
  struct pen_hold hold;
  uint32_t consumer; /* the rank of that stage; PEN_NONE where there is none */
};

/* One action. */
struct pen_search_cell {
  uint32_t type, need; /* need: the cell of another stage that it waits for; cell_count: none */
};

/* What all parts read. Microbatches of a stage cost the same, so the n-th F (I, W) of a stage is
 * always that of microbatch n: an order in which they change places is no better (see search.c).
 * Indices: type = kind * stages + stage, cell = type * microbatches + microbatch.
 *
 * Lists of cells, [rank][count], say what order the ranks run. Where the W of a stage and
 * microbatch is in no list, its I stands for B, and the rank's list ends with PEN_NONE in its
 * place. */
struct pen_search_problem {
  const struct pen_partition *partition;
  const struct pen_training *training;
  const struct pen_stage_cost *stage_cost;
  const struct pen_stage_cost
      *least_cost;     /* the same, but W as if it came as part of B: for bounds */
  double overlap_cost; /* of pairs in named schedules; the search makes none */
  const struct pen_budget *budget;
  bool by_span; /* the objective: false is the makespan */
  uint32_t rank_count, stage_count, stages_per_rank, microbatch_count;
  uint32_t count; /* actions of a rank */
  uint32_t cell_count;
  const uint32_t *stages;             /* [rank][stages_per_rank] rising */
  const struct pen_search_type *type; /* [type], kinds as PEN_PROGRAM_F ... PEN_PROGRAM_B */
  const struct pen_search_cell *cell; /* [cell], as when every backward is split */
  const bool *whole; /* [stage] B needs less room, or less time, than I and W: else it is never
                        worth while (see search.c) */
  bool any_whole;
  const double
      *work; /* [rank] least sum of its actions' costs: with every B whole that shares something */
  const double *after; /* [rank] what counts behind its last action: pen_tied_weight_tail(), in the
                          makespan alone */
};

struct pen_search_problem *pen_search_problem(const struct pen_partition *partition,
                                              const struct pen_training *training,
                                              const struct pen_stage_cost *cost,
                                              double overlap_cost, const struct pen_budget *budget,
                                              bool by_span);

/* The cell of a kind, stage and microbatch. */
static inline uint32_t pen_search_cell_of(const struct pen_search_problem *search, uint32_t kind,
                                          uint32_t stage, uint32_t microbatch) {
  return (kind * search->stage_count + stage) * search->microbatch_count + microbatch;
}

/* Lists of cells as an order; and an order, whatever its splits and pairs, as lists of cells: of
 * its B those stay whole that pay. */
struct pen_order *pen_search_order(const struct pen_search_problem *search, const uint32_t *list);
void pen_search_lists(const struct pen_search_problem *search, const struct pen_order *order,
                      uint32_t *list);

/* Makes an I and the W right after it a B again where nothing comes later by it and the limit
 * allows. Returns the order's timing. */
const struct pen_timing *pen_search_fuse(const struct pen_search_problem *search,
                                         struct pen_order *order, const struct pen_timing *timing);

#endif
