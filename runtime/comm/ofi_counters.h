/* ofi_counters.h: the numbers of a rank's counters, which writes by libfabric raise: two for each
 * message of each profile (its arrival, its credit), then those of the peers in other replicas. */
#ifndef PEN_OFI_COUNTERS_H
#define PEN_OFI_COUNTERS_H

#include "runtime/plan/plan.h"

/* The counters of the messages of the profiles before this one. */
static inline uint32_t pen_ofi_counters_before(const struct pen_plan *plan, size_t profile) {
  uint32_t count = 0;
  for (size_t p = 0; p < profile; p++) {
    count += 2 * plan->profiles[p].message_count;
  }
  return count;
}

/* Of a replica's rank: after those of all messages. */
enum pen_ofi_peer_counter { PEN_OFI_ENDED, PEN_OFI_READY, PEN_OFI_SHARDS, PEN_OFI_PEER_COUNTERS };

static inline uint32_t pen_ofi_peer_counter(const struct pen_plan *plan,
                                            enum pen_ofi_peer_counter which, uint32_t replica) {
  return pen_ofi_counters_before(plan, plan->profile_count) +
         which * pen_group_size(plan, PEN_DATA) + replica;
}

#endif
