/* pack_first_fit.h: rectangles by first row, each at the lowest offset where it fits. */
#ifndef PEN_PACK_FIRST_FIT_H
#define PEN_PACK_FIRST_FIT_H

#include "gen/layout/pack.h"
#include "kernels/ops.h"

struct pen_packing {
  struct pen_rectangle
      *rectangle; /* [count]; the first `fixed` have their places, all below the wall */
  size_t fixed, count;
  uint32_t rows; /* past the last row of any */
  uint64_t unit; /* bytes: what offsets are counted in while rectangles are placed */
  uint32_t wall; /* in units; nothing crosses it */
  uint32_t *start,
      *end; /* [count]: the fixed ones, then the others, each by first row; and by last row */
};

static inline uint32_t pen_units(const struct pen_packing *p, uint64_t bytes) {
  return (uint32_t)((bytes + p->unit - 1) / p->unit);
}

struct pen_sweep;

/* Makes ready for sweeps over the rectangles: once for all. */
struct pen_sweep *pen_sweep_begin(const struct pen_packing *packing);
/* Gives every rectangle but the fixed ones an offset. Returns the end of the highest, in units. */
uint32_t pen_sweep_place(struct pen_sweep *sweep, bool best_fit);
void pen_sweep_free(struct pen_sweep *sweep);

#endif
