/* seeds.h: the orders that a search begins with. */
#ifndef PEN_SEEDS_H
#define PEN_SEEDS_H

#include "gen/search/search.h"
#include "gen/search/timeline.h"
#include "gen/topology/topology.h"

/* As lists of cells: a named schedule's, with every backward split and microbatches rising, or a
 * list schedule. */
struct pen_search_seed {
  const char *name;
  uint32_t *list;
  struct pen_search_value value;
};

enum { PEN_SEARCH_SEEDS = 8 };

struct pen_search_seeds {
  struct pen_search_seed
      start[PEN_SEARCH_SEEDS]; /* the best, no two of one value, by rising value */
  uint32_t count;
  struct pen_search_named *named; /* all that suit */
  size_t named_count, named_capacity;
  uint64_t tried;
  const char *placement;
};

/* All named schedules that suit the topology on the timeline's placement, and list schedules until
 * about `work` actions were timed. */
struct pen_search_seeds *pen_search_seeds(const struct pen_topology *topology,
                                          const char *placement,
                                          struct pen_search_timeline *timeline, uint64_t work);

#endif
