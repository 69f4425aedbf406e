/* side.h: the search on one placement: its starts, and the rounds that improve its best order. */
#ifndef PEN_SEARCH_SIDE_H
#define PEN_SEARCH_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/schedule/order.h"
#include "gen/search/percentile.h"
#include "gen/search/problem.h"
#include "gen/search/progress.h"
#include "gen/search/search.h"
#include "gen/search/seeds.h"
#include "gen/search/timeline.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

enum {
  PEN_SEARCH_ROUNDS = 5,      /* of a second */
  PEN_SEARCH_FIRST_ROUNDS = 3 /* of each placement, before the better one continues */
};

/* The search on one placement. */
struct pen_search_side {
  const struct pen_search_problem *search;
  struct pen_search_timeline *timeline;
  struct pen_search_seeds *starts;
  struct pen_search_progress *progress;
  struct pen_search_percentile *percentile; /* null: not the objective */
  struct pen_order *order;                  /* the best order, and its timing */
  const struct pen_timing *timing;
  const char *from;
  enum pen_placement placement;
  bool is_named;             /* it is the order of a named schedule, not made of lists */
  uint32_t *best;            /* the best lists */
  double bound, other_bound; /* of the objective, and of the other */
};

/* Builds the starts and takes the best of them. The order of a named schedule is taken if it is
 * better than the lists made from it. */
struct pen_search_side *pen_search_side_start(const struct pen_topology *topology,
                                              const struct pen_search_problem *search,
                                              struct pen_search_progress *progress,
                                              enum pen_placement placement,
                                              const struct pen_search *known, uint64_t work);

/* Runs round `index`: from the best order so far, but the last round of each second from the next
 * start. `work`: of a second. */
void pen_search_side_round(struct pen_search_side *side, uint64_t index, uint64_t work,
                           uint64_t seed);

/* Runs a last round by the other objective, which must not make the first worse. */
void pen_search_side_break_ties(struct pen_search_side *side, uint64_t work, uint64_t seed);

/* The value of the objective: of an order's timing, and of a named schedule. */
double pen_search_side_value(const struct pen_search_side *side, const struct pen_timing *timing);
double pen_search_side_named_value(const struct pen_search_side *side,
                                   const struct pen_search_named *named);

/* Whether a timing is better than that of the best order: by the objective, then by the other. */
bool pen_search_side_is_better(const struct pen_search_side *side, const struct pen_timing *timing);

/* Takes the order of a named schedule as the best. */
void pen_search_side_take(struct pen_search_side *side, const struct pen_search_named *named);

/* The lower bound of the objective, or of the other, for any order of the same actions. */
double pen_search_side_bound(const struct pen_search_side *side, const struct pen_order *order,
                             double overlap, bool other);

#endif
