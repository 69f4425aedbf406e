/* checkpoint_state.h: how far a run is, beside its tensors: what manifest.json says of it. */
#ifndef PEN_CHECKPOINT_STATE_H
#define PEN_CHECKPOINT_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/data/data_place.h"

/* How often AdamW has updated each tensor since its moments were zero, by which it corrects their
 * bias. A step updates all tensors that are trained, or none: so between any two the difference
 * stays, and one number counts for all. */
struct pen_update_counts {
  uint64_t most;       /* of the trained tensor that has had the most */
  const uint64_t *lag; /* [weight_count]: how many fewer a trained weight has had; null: none */
};

static inline uint64_t pen_lag_of(const uint64_t *lag, uint32_t weight) {
  return lag == NULL ? 0 : lag[weight];
}

struct pen_checkpoint_state {
  uint64_t step;                    /* optimizer steps that are in the weights */
  uint64_t cursor;                  /* of the next step */
  struct pen_data_place place;      /* likewise: what was read of which data */
  struct pen_update_counts updates; /* that are in the weights */
};

#endif
