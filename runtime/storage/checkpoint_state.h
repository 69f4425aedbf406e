/* checkpoint_state.h: how far a run is, beside its tensors: what manifest.json says of it. */
#ifndef PEN_CHECKPOINT_STATE_H
#define PEN_CHECKPOINT_STATE_H

#include <stdint.h>

#include "runtime/data/data_place.h"
#include "runtime/storage/update_counts.h"

struct pen_checkpoint_state {
  uint64_t step;                    /* optimizer steps that are in the weights */
  uint64_t cursor;                  /* of the next step */
  struct pen_data_place place;      /* likewise: what was read of which data */
  struct pen_update_counts updates; /* that are in the weights */
};

#endif
