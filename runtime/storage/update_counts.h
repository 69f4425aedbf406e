/* update_counts.h: how often AdamW has updated each tensor since its moments were zero, by which it
 * corrects their bias. A step updates all tensors that are trained, or none: so between any two the
 * difference stays, and one number counts for all. */
#ifndef PEN_UPDATE_COUNTS_H
#define PEN_UPDATE_COUNTS_H

#include <stddef.h>
#include <stdint.h>

struct pen_update_counts {
  uint64_t most;       /* of the trained tensor that has had the most */
  const uint64_t *lag; /* [weight_count]: how many fewer a trained weight has had; null: none */
};

static inline uint64_t pen_lag_of(const uint64_t *lag, uint32_t weight) {
  return lag == NULL ? 0 : lag[weight];
}

#endif
