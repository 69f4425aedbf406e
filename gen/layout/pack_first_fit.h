/* pack_first_fit.h: rectangles by first time, each at the lowest offset where it fits. */
#ifndef PEN_PACK_FIRST_FIT_H
#define PEN_PACK_FIRST_FIT_H

#include "gen/layout/pack.h"
#include "kernels/ops.h"

struct pen_packing {
  struct pen_rectangle
      *rectangle; /* [count]; the first `fixed` have offsets, all below the limit */
  size_t fixed, count;
  uint32_t time_count; /* the last time of any + 1 */
  uint64_t unit;       /* bytes; offsets are counted in units while rectangles are placed */
  uint32_t limit;      /* in units: no rectangle crosses it */
  uint32_t *start,
      *end; /* [count]: the fixed ones, then the others, each by first time; by last time */
};

static inline uint32_t pen_units(const struct pen_packing *p, uint64_t bytes) {
  return (uint32_t)((bytes + p->unit - 1) / p->unit);
}

struct pen_sweep;

/* Prepares sweeps over the rectangles. */
struct pen_sweep *pen_sweep_begin(const struct pen_packing *packing);
/* Sets the offset of every rectangle but the fixed ones. Returns the highest end, in units. */
uint32_t pen_sweep_place(struct pen_sweep *sweep, bool best_fit);
void pen_sweep_free(struct pen_sweep *sweep);

#endif
