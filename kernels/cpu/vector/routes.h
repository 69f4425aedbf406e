/* routes.h: the rows of a slice and the order of its slots (kernels/ops.def, "mixtures of
 * experts"). */
#ifndef PEN_ROUTES_H
#define PEN_ROUTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Rows of a microbatch, of which a slice has the `slice`-th part of each run. */
struct slice {
  size_t rows, part, runs, slice;
};

/* The row that is number i of the slice. */
static inline size_t row_of_slice(const struct slice *s, size_t i) {
  const size_t run = s->part / s->runs;
  return i / run * (s->rows / s->runs) + s->slice * run + i % run;
}

/* Slots of a slice, in the order of the experts. */
struct slot_order {
  size_t count, experts, choices;
  int32_t *first; /* [experts + 1]: the first slot of each expert */
  int32_t *pair;  /* [count]: number of the slice's row times choices, plus that of its choice */
};

/* Lists the slots in memory of experts + 1 + count numbers. */
static inline struct slot_order list_slots(const struct slice *s, const int32_t *expert,
                                           size_t experts, size_t choices, int32_t *memory) {
  struct slot_order slots = {s->part * choices, experts, choices, memory, memory + experts + 1};
  memset(slots.first, 0, (experts + 1) * sizeof *slots.first);
  for (size_t i = 0; i < s->part; i++)
    for (size_t c = 0; c < choices; c++) slots.first[expert[row_of_slice(s, i) * choices + c]]++;
  for (size_t e = experts, past = slots.count; e-- > 0;) {
    past -= (size_t)slots.first[e];
    slots.first[e + 1] = (int32_t)past; /* of e, until it has advanced to that of the next */
  }
  slots.first[0] = 0;
  for (size_t i = 0; i < s->part; i++)
    for (size_t c = 0; c < choices; c++)
      slots.pair[slots.first[expert[row_of_slice(s, i) * choices + c] + 1]++] =
          (int32_t)(i * choices + c);
  return slots;
}

/* The slots of an expert from `first` on and before `past`. */
struct segment {
  size_t first, past;
};

static inline struct segment segment_of(const struct slot_order *slots, size_t expert, size_t first,
                                        size_t past) {
  const size_t begin = (size_t)slots->first[expert], end = (size_t)slots->first[expert + 1];
  return (struct segment){begin > first ? begin : first, end < past ? end : past};
}

#endif
