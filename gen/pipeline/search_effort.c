/* search_effort.c: how much the schedule search may do (see search_effort.h). */
#include "gen/pipeline/search_effort.h"

struct pen_search_effort pen_search_effort_of(const struct pen_generator_options *options,
                                              const struct pen_topology *topology) {
  const bool seconds = topology->has_pipeline_search_seconds && !options->search_seconds_given,
             seed = topology->has_pipeline_search_seed && !options->search_seed_given;
  return (struct pen_search_effort){
      seconds ? (uint64_t)topology->pipeline_search_seconds : options->search_seconds,
      seed ? (uint64_t)topology->pipeline_search_seed : options->search_seed};
}
