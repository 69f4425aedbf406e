/* timeline.h: the times of one order of F, I, W and B while actions move. */
#ifndef PEN_TIMELINE_H
#define PEN_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/problem.h"

/* The value of an order. */
struct pen_search_value {
  double greatest; /* the greatest span or, for the makespan, end of a rank: the objective */
  double mean;     /* of the same */
  double other;    /* the objective that breaks ties */
};

/* Times of a cell. */
struct pen_search_times {
  double start, arrival; /* arrival: its end plus, for F and I, the latency of the message */
  double idle; /* of its rank until its start, since the start of the rank (span) or of the step
                  (makespan) */
};

struct pen_search_trial {
  struct pen_search_times times;
  uint64_t epoch; /* the trial that set it */
};

struct pen_search_timeline {
  const struct pen_search_problem *search;
  uint32_t *list;   /* [rank][count] cells in the order of execution */
  uint32_t *length; /* [rank] of its list: count minus the W that are in no list */
  uint32_t *place;  /* [cell] index in its rank's list; PEN_NONE: the W of a B */
  struct pen_search_cell
      *cell;    /* [cell] as in the problem, but an I that means B has the type of B */
  double *held; /* [rank][count + 1] what the rank holds before each action */
  struct pen_search_times *times; /* [cell], and one more that is complete at the start */
  struct pen_search_trial *trial; /* [cell_count + 1] */
  uint32_t *from, *at, *stack;    /* [rank] */
  uint32_t *turn, turns;          /* the cells that the last trial has timed, in that order */
  uint32_t *waits;                /* [rank] the cell it waits for, or PEN_NONE */
  uint64_t epoch, work;           /* trials so far; actions timed so far */
  uint64_t moves;                 /* that a search has tried */
};

struct pen_search_timeline *pen_search_timeline(const struct pen_search_problem *search);

/* Sets the order to lists [rank][count] of cells. False: it can never finish, or a rank holds more
 * than the budget; the timeline is then not valid. */
bool pen_search_set(struct pen_search_timeline *timeline, const uint32_t *list,
                    struct pen_search_value *value);

/* Moves a cell from one place in its rank's list to another. For a W, a place may be PEN_NONE,
 * which means not in the list: its I then means B. */
struct pen_search_move {
  uint32_t rank, cell, from, to;
};

/* The places to which an action may move, so that the rank does not wait for an action later in its
 * own list and the stage's weight gradients are in ascending order. For a W in no list: where it
 * may be inserted. */
void pen_search_reach(const struct pen_search_timeline *timeline, uint32_t cell, uint32_t *lowest,
                      uint32_t *highest);

/* Whether a W may be removed from its list, with the stage's weight gradients still in ascending
 * order. */
bool pen_search_may_leave(const struct pen_search_timeline *timeline, uint32_t cell);

/* Moves an action to an allowed place and times the actions that it affects. True: a trial, for
 * pen_search_keep() or pen_search_undo(). False: nothing has changed, because the rank would
 * hold too much, the order could never finish, or `greatest` would exceed `most`. */
bool pen_search_try(struct pen_search_timeline *timeline, const struct pen_search_move *move,
                    double most, struct pen_search_value *value);
void pen_search_keep(struct pen_search_timeline *timeline);
void pen_search_undo(struct pen_search_timeline *timeline, const struct pen_search_move *move);

#endif
