/* anneal.h: local search by annealing. */
#ifndef PEN_ANNEAL_H
#define PEN_ANNEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/search/timeline.h"

struct pen_search_anneal {
  uint64_t seed;
  uint64_t work;      /* actions to time before it ends */
  double temperature; /* at its start, in units of cost; it falls to nothing */
  double good_enough; /* it ends when what it minimises is no more than this */
  bool breaks_ties;   /* it minimises the other objective, and the greatest may not exceed `most` */
  double most;
};

/* Improves the timeline's position from `value` on; `best`, lists as of pen_search_set(), receives
 * the best position seen. Returns its value. */
struct pen_search_value pen_search_improve(struct pen_search_timeline *timeline,
                                           const struct pen_search_anneal *anneal,
                                           struct pen_search_value value, uint32_t *best);

/* xorshift64*, Marsaglia and Vigna: the same on every machine. */
static inline uint64_t pen_search_draw(uint64_t *seed) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * 0x2545F4914F6CDD1DULL;
}

#endif
