/* pack.h: puts rectangles (bytes x time) at offsets: see pack.c. */
#ifndef PEN_PACK_H
#define PEN_PACK_H

#include <stddef.h>
#include <stdint.h>

/* A buffer that occupies `bytes` from time `first` to `last`, both included. */
struct pen_rectangle {
  uint64_t bytes;
  uint32_t first, last;
  uint64_t offset; /* set by pen_pack() */
};

/* Gives every rectangle except the first `fixed`, which have an offset, one that overlaps no other;
 * none crosses the offset `limit_offset`. Returns the end of the highest; UINT64_MAX, with nothing
 * placed, if it must be more than `limit`. Stops searching once the end is at most `goal`, or after
 * `steps` comparisons of two rectangles. */
uint64_t pen_pack(struct pen_rectangle *rectangle, size_t fixed, size_t count,
                  uint64_t limit_offset, uint64_t limit, uint64_t goal, size_t steps);

#endif
