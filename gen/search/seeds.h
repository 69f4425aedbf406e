/* seeds.h: the orders that the search starts from. */
#ifndef PEN_SEEDS_H
#define PEN_SEEDS_H

#include "gen/search/search.h"
#include "gen/search/timeline.h"
#include "gen/topology/topology.h"

/* A start as lists of cells: a named schedule with microbatches in ascending order, or a list
 * schedule. */
struct pen_search_seed {
  const char *name;
  uint32_t *list;
  struct pen_search_value value;
};

enum { PEN_SEARCH_SEEDS = 8 };

struct pen_search_rules;

struct pen_search_seeds {
  struct pen_search_seed
      start[PEN_SEARCH_SEEDS]; /* the best, by ascending value, no two with the same */
  uint32_t count;
  struct pen_search_named *named; /* all that suit the topology */
  size_t named_count;
  struct pen_search_rules *rules; /* of list schedules */
  uint64_t tried;
  enum pen_placement placement;
};

/* All named schedules that suit the topology on the timeline's placement, and list schedules until
 * about `work` actions are timed. */
struct pen_search_seeds *pen_search_seeds(const struct pen_topology *topology,
                                          enum pen_placement placement,
                                          struct pen_search_timeline *timeline, uint64_t work);

/* Adds an order that is known. */
void pen_search_seeds_take(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                           const struct pen_order *order, const char *name);

/* Adds a list schedule whose rule is improved with that many builds, and sets the timeline to it.
 * False: none was found. */
bool pen_search_seeds_add(struct pen_search_seeds *starts, struct pen_search_timeline *timeline,
                          uint64_t builds, uint64_t seed);

#endif
