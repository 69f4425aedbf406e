/* rank_set.h: the ranks of a command: all, those of a host, or one (cluster.mapping). */
#ifndef PEN_RANK_SET_H
#define PEN_RANK_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/plan/plan.h"

/* Global ranks. */
struct pen_rank_set {
  const uint32_t *rank_hosts; /* of the plan; null: all ranks are on one host */
  uint32_t process_count;
  uint32_t host;
  uint32_t only;         /* the only rank of the host that is meant; PEN_NONE: all of the host */
  uint32_t first, count; /* the lowest, and how many; process_count and 0 of an empty set */
};

static inline bool pen_rank_set_has(const struct pen_rank_set *set, uint32_t rank) {
  return rank < set->process_count && (set->only == PEN_NONE || rank == set->only) &&
         (set->rank_hosts == NULL || set->rank_hosts[rank] == set->host);
}

/* The lowest rank of the set from `rank` on; process_count: there is none. */
static inline uint32_t pen_rank_set_next(const struct pen_rank_set *set, uint32_t rank) {
  while (rank < set->process_count && !pen_rank_set_has(set, rank)) {
    rank++;
  }
  return rank;
}

/* How many ranks of the set are lower. */
static inline uint32_t pen_rank_set_index(const struct pen_rank_set *set, uint32_t rank) {
  uint32_t index = 0;
  for (uint32_t r = set->first; r < rank; r = pen_rank_set_next(set, r + 1)) {
    index++;
  }
  return index;
}

/* All ranks of a plan. */
static inline struct pen_rank_set pen_rank_set_all(const struct pen_plan *plan) {
  return (struct pen_rank_set){
      .process_count = pen_process_count(plan), .only = PEN_NONE, .count = pen_process_count(plan)};
}

/* The ranks of a host, or one of them. */
static inline struct pen_rank_set pen_rank_set_of(const struct pen_plan *plan, uint32_t host,
                                                  uint32_t only) {
  struct pen_rank_set set = {.rank_hosts = plan->rank_hosts,
                             .process_count = pen_process_count(plan),
                             .host = host,
                             .only = only};
  set.first = pen_rank_set_next(&set, 0);
  for (uint32_t r = set.first; r < set.process_count; r = pen_rank_set_next(&set, r + 1)) {
    set.count++;
  }
  return set;
}

static inline uint32_t pen_rank_host(const struct pen_plan *plan, uint32_t rank) {
  return plan->rank_hosts == NULL ? 0 : plan->rank_hosts[rank];
}

/* How many lower ranks are on the same host. */
static inline uint32_t pen_host_index(const struct pen_plan *plan, uint32_t rank) {
  const struct pen_rank_set set = pen_rank_set_of(plan, pen_rank_host(plan, rank), PEN_NONE);
  return pen_rank_set_index(&set, rank);
}

#endif
