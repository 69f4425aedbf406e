/* anneal.h: local search by simulated annealing. */
#ifndef PEN_ANNEAL_H
#define PEN_ANNEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/annealer.h"
#include "gen/search/timeline.h"

struct pen_search_anneal {
  uint64_t seed;
  uint64_t work;      /* actions to time before the search ends */
  double temperature; /* initial, in units of cost; it decreases to 0 */
  double good_enough; /* the search ends when the objective is at most this */
  bool breaks_ties;   /* minimise the other objective, with `greatest` at most `most` */
  double most;
};

/* Improves the order of the timeline, whose value is `value`. `best`, lists as of pen_search_set(),
 * receives the best order found. Returns its value. */
struct pen_search_value pen_search_improve(struct pen_search_timeline *timeline,
                                           const struct pen_search_anneal *anneal,
                                           struct pen_search_value value, uint32_t *best);

/* Draws a move. False: it is not allowed or changes nothing. */
bool pen_search_draw_move(const struct pen_search_timeline *timeline, uint64_t *seed,
                          struct pen_search_move *move);

#endif
