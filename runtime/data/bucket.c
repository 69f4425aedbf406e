/* bucket.c: which bucket a step runs (see bucket.h). */
#include "runtime/data/bucket.h"

#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/data/windows.h"

struct pen_buckets pen_buckets_of(const struct pen_plan *plan, enum pen_profile_kind kind) {
  struct pen_buckets buckets = {.count = 0};
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_profile *profile = &plan->profiles[p];
    if (profile->kind != kind) {
      continue;
    }
    pen_assert(buckets.count < PEN_BUCKETS_MAX);
    uint32_t at = buckets.count++;
    for (; at > 0 && buckets.profile[at - 1]->sequence > profile->sequence; at--) {
      buckets.profile[at] = buckets.profile[at - 1];
    }
    buckets.profile[at] = profile;
  }
  return buckets;
}

enum pen_profile_kind pen_scored_kind(const struct pen_plan *plan) {
  return pen_buckets_of(plan, PEN_SCORE).count > 0 ? PEN_SCORE : PEN_EVAL;
}

struct pen_buckets pen_buckets_of_generation(const struct pen_plan *plan) {
  struct pen_buckets buckets = pen_buckets_of(plan, PEN_GENERATE);
  const struct pen_buckets cached = pen_buckets_of(plan, PEN_CACHED);
  for (uint32_t b = 0; b < cached.count; b++) {
    pen_assert(buckets.count < PEN_BUCKETS_MAX);
    buckets.profile[buckets.count++] = cached.profile[b];
  }
  return buckets;
}

void pen_buckets_force(struct pen_buckets *buckets, uint64_t sequence) {
  char list[PEN_BUCKETS_MAX * 12] = "";
  size_t used = 0;
  for (uint32_t s = 0; s < buckets->count; s++) {
    if (buckets->profile[s]->sequence == sequence) {
      buckets->profile[0] = buckets->profile[s];
      buckets->count = 1;
      return;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRIu32, s == 0 ? "" : ", ",
                             buckets->profile[s]->sequence);
  }
  pen_fail(PEN_EXIT_USAGE, "--shape %" PRIu64 ": this binary's shapes have sequences of %s",
           sequence, list);
}

uint32_t pen_bucket_of_step(const struct pen_buckets *buckets, const struct pen_plan *plan,
                            const struct pen_data *data, uint64_t cursor) {
  uint32_t s = 0;
  while (s + 1 < buckets->count &&
         pen_data_longest(data, cursor, pen_data_step_windows(plan, buckets->profile[s])) >
             buckets->profile[s]->sequence) {
    s++;
  }
  return s;
}
