/* search.h: orders of F, I and W that no rule gives: what is searched, and the parts of the search.
 *
 *   search.c         the pass: rounds of improvement by both objectives, and the best of all
 *   search_case.c    the case as numbers; lists of actions and orders
 *   search_starts.c  orders to begin with: named schedules, list schedules
 *   search_board.c   one order, and its times while actions move
 *   search_build.c   list scheduling: a whole order from a few numbers
 *   search_improve.c local search by annealing
 */
#ifndef PEN_SEARCH_H
#define PEN_SEARCH_H

#include "gen/timing/lower_bound.h"
#include "gen/partition/partition.h"
#include "gen/partition/training.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

/* ---- the case ---- */

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

/* ---- the board: search_board.c ---- */

/* What a position is worth. */
struct pen_search_value {
  double greatest; /* of the ranks' spans or, for makespans, ends: the objective */
  double mean;     /* of the same */
  double other;    /* the objective that breaks ties */
};

/* Times of a cell. */
struct pen_search_times {
  double start, arrival; /* arrival: end and, for F and I, the message's way */
  double
      idle; /* of its rank until its start, from the rank's start (span) or the step's (makespan) */
};

struct pen_search_trial {
  struct pen_search_times times;
  uint64_t epoch; /* the trial that set it */
};

struct pen_search_timeline {
  const struct pen_search_problem *search;
  uint32_t *list;   /* [rank][count] cells in the order of running */
  uint32_t *length; /* [rank] of its list: count, less the W that are in none */
  uint32_t *place;  /* [cell] index in its rank's list; PEN_NONE: the W of a B */
  struct pen_search_cell
      *cell;    /* [cell] as the case has it, but an I that stands for B has the type of B */
  double *held; /* [rank][count + 1] what the rank holds before each action */
  struct pen_search_times *times; /* [cell], and one more that is there from the start */
  struct pen_search_trial *trial; /* the same */
  uint32_t *from, *at, *stack;    /* [rank] */
  uint32_t *waits;                /* [rank] the cell it waits for, or PEN_NONE */
  uint64_t epoch, work;           /* trials so far; actions timed so far */
};

struct pen_search_timeline *pen_search_timeline(const struct pen_search_problem *search);

/* Takes lists [rank][count] of cells. False: they can never finish, or hold more than the budget;
 * the board is then no position. */
bool pen_search_set(struct pen_search_timeline *board, const uint32_t *list,
                    struct pen_search_value *value);

/* From one place in its rank's list to another. Of a W, PEN_NONE is a place too: its I becomes a B,
 * or is one no more. */
struct pen_search_move {
  uint32_t rank, cell, from, to;
};

/* Where an action may stand among its rank's others, so that the rank itself never waits for what
 * comes later in its own list, and the stage's weight gradients rise. Of a W that is in no list:
 * where it could come in. */
void pen_search_reach(const struct pen_search_timeline *board, uint32_t cell, uint32_t *lowest,
                      uint32_t *highest);

/* Whether a W in a list may leave it, so that the stage's weight gradients still rise. */
bool pen_search_may_leave(const struct pen_search_timeline *board, uint32_t cell);

/* Moves an action to another place within its reach and times what follows. False, and nothing has
 * changed: what the rank would hold is too much, or the order could never finish, or its greatest
 * would exceed `most`. True: the move stands as a trial, to be kept or taken back. */
bool pen_search_try(struct pen_search_timeline *board, const struct pen_search_move *move,
                    double most, struct pen_search_value *value);
void pen_search_keep(struct pen_search_timeline *board);
void pen_search_take_back(struct pen_search_timeline *board, const struct pen_search_move *move);

/* ---- list scheduling: search_build.c ---- */

/* How a list schedule decides. */
struct pen_search_rule {
  double flight, slope; /* rank r has at most floor(flight - slope * r) forwards of its stages
                           without their I, but one of each */
  double patience;      /* a rank rather runs W than wait longer than this share of the W */
  bool backward_first;  /* I before F when both are there */
  bool deep_first;      /* of several stages the last rather than the first */
  bool whole; /* every backward that may be whole is; else only those that have no room for I and W
               */
};

struct pen_search_builder *pen_search_builder(const struct pen_search_problem *search);

/* Fills list [rank][count] with cells. False: the limit leaves no way. */
bool pen_search_build(struct pen_search_builder *builder, const struct pen_search_rule *rule,
                      uint32_t *list);

/* ---- local search: search_improve.c ---- */

struct pen_search_anneal {
  uint64_t seed;
  uint64_t work;      /* actions to time before it ends */
  double temperature; /* at its start, in units of cost; it falls to nothing */
  double good_enough; /* it ends when what it minimises is no more than this */
  bool breaks_ties;   /* it minimises the other objective, and the greatest may not exceed `most` */
  double most;
};

/* Improves the board's position from `value` on; `best`, lists as of pen_search_set(), receives the
 * best position seen. Returns its value. */
struct pen_search_value pen_search_improve(struct pen_search_timeline *board,
                                           const struct pen_search_anneal *anneal,
                                           struct pen_search_value value, uint32_t *best);

/* xorshift64*, Marsaglia and Vigna: the same on every machine. */
static inline uint64_t pen_search_draw(uint64_t *seed) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * 0x2545F4914F6CDD1DULL;
}

/* ---- the pass: search.c ---- */

/* A named schedule as it is. */
struct pen_search_named {
  const char *name, *placement;
  struct pen_order *order;
  const struct pen_timing *timing;
  bool fits; /* it keeps within the budget */
};

struct pen_search_side;

struct pen_search {
  struct pen_order *order; /* null: none was found that keeps within the limit */
  const char *placement;   /* "loop" or "v" */
  const char *start;       /* the schedule, or kind of start, that the best came from */
  const char *objective;
  double makespan, span;
  double lower_bound, gap;        /* of the objective */
  uint64_t starts, work;          /* orders that the search began with; actions timed in all */
  struct pen_search_named *named; /* [named_count] all that suit, whether they fit or not, the best
                                     by the objective first */
  size_t named_count;
  struct pen_search_side
      *side[2]; /* [loop, v] the search by the objective; null: that placement was not tried */
};

struct pen_search_effort {
  uint64_t seconds; /* stands for a fixed amount of work, so that the result depends on no clock */
  uint64_t seed;
};

/* Whether the times of all orders are numbers: what pen_search() needs. */
bool pen_search_can_time(const struct pen_partition *partition, const struct pen_stage_cost *cost);

/* Searches for the topology's schedule. The result's placement holds, not that of partition and
 * topology. `slack`: see pen_budget_of(). */
struct pen_search *pen_search(const struct pen_topology *topology,
                              const struct pen_partition *partition,
                              const struct pen_training *training, struct pen_graph *const *graph,
                              const struct pen_stage_cost *cost, double overlap_cost,
                              const struct pen_search_effort *effort, const double *slack);

/* Whether a named order is better than the one found, if one was. */
bool pen_search_is_better(const struct pen_search *search, const struct pen_search_named *named);

/* The same result with a named order, and its placement, in place of the order found. */
struct pen_search *pen_search_with_named(const struct pen_search *search,
                                         const struct pen_search_named *named);

/* Fails (78): says what one microbatch needs, which is more than the limit. Returns where that is
 * not so. */
void pen_search_refuse(const struct pen_search *search, const struct pen_topology *topology);

/* Says on one line of standard error what came of it. */
void pen_search_print(const struct pen_search *search, const char *unit);

#endif
