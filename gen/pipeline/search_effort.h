/* search_effort.h: how much the schedule search may do. */
#ifndef PEN_SEARCH_EFFORT_H
#define PEN_SEARCH_EFFORT_H

#include "gen/pipeline/options.h"
#include "gen/search/search.h"
#include "gen/topology/topology.h"

/* By the options, if they are given; else by the topology. */
struct pen_search_effort pen_search_effort_of(const struct pen_generator_options *options,
                                              const struct pen_topology *topology);

#endif
