/* timeline.h: one order of F, I and W, and its times while actions move. */
#ifndef PEN_TIMELINE_H
#define PEN_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/problem.h"

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
 * the timeline is then no position. */
bool pen_search_set(struct pen_search_timeline *timeline, const uint32_t *list,
                    struct pen_search_value *value);

/* From one place in its rank's list to another. Of a W, PEN_NONE is a place too: its I becomes a B,
 * or is one no more. */
struct pen_search_move {
  uint32_t rank, cell, from, to;
};

/* Where an action may stand among its rank's others, so that the rank itself never waits for what
 * comes later in its own list, and the stage's weight gradients rise. Of a W that is in no list:
 * where it could come in. */
void pen_search_reach(const struct pen_search_timeline *timeline, uint32_t cell, uint32_t *lowest,
                      uint32_t *highest);

/* Whether a W in a list may leave it, so that the stage's weight gradients still rise. */
bool pen_search_may_leave(const struct pen_search_timeline *timeline, uint32_t cell);

/* Moves an action to another place within its reach and times what follows. False, and nothing has
 * changed: what the rank would hold is too much, or the order could never finish, or its greatest
 * would exceed `most`. True: the move stands as a trial, to be kept or taken back. */
bool pen_search_try(struct pen_search_timeline *timeline, const struct pen_search_move *move,
                    double most, struct pen_search_value *value);
void pen_search_keep(struct pen_search_timeline *timeline);
void pen_search_take_back(struct pen_search_timeline *timeline, const struct pen_search_move *move);

#endif
