/* split_buffers.h: splits the buffer of SAVED_W into pieces: see split_buffers.c. */
#ifndef PEN_SPLIT_BUFFERS_H
#define PEN_SPLIT_BUFFERS_H

#include "runtime/plan/plan.h"

/* The bases of SAVED_W's pieces. */
enum { PEN_PIECES = 1 + PEN_BASE_SAVED_W_7 - PEN_BASE_SAVED_W_1 + 1 };
static inline int pen_piece_base(uint32_t piece) {
  return piece ? PEN_BASE_SAVED_W_1 + (int)piece - 1 : PEN_BASE_SAVED_W;
}

/* How SAVED_W is split: see split_buffers.c. */
enum pen_split_kind {
  PEN_SPLIT_NONE,
  PEN_SPLIT_LAYERS,
  PEN_SPLIT_BLOCKS,
  PEN_SPLIT_COMMON,
  PEN_SPLIT_EVEN,
  PEN_SPLIT_KINDS
};

/* A value that is kept until W. */
struct pen_saved {
  uint32_t value, layer;
  uint32_t block; /* of the stage, from 0 */
  bool passed_on; /* to another block of the stage */
  uint64_t bytes; /* aligned */
};

/* Sizes, in descending order, that most layers have. */
struct pen_common {
  const uint64_t *size;
  size_t count;
  uint64_t bytes; /* their sum */
};

struct pen_buffer_split {
  enum pen_split_kind kind;
  uint32_t layers_per_piece; /* LAYERS: of at most PEN_PIECES pieces */
  struct pen_common common;  /* COMMON */
  size_t passed_on;          /* BLOCKS: how many values every stage of the rank passes on */
  const bool *runs;          /* [program]: whether any action runs it; NULL: each does */
};

/* What the layers of a rank's stages have in common. saved[stages], each of count[stage]. */
struct pen_common pen_common_sizes(const struct pen_saved *const *saved, const size_t *count,
                                   size_t stages);
/* The piece of each value, [count], in the order in which F makes them. */
uint8_t *pen_split_saved(const struct pen_saved *saved, size_t count,
                         const struct pen_buffer_split *split);

#endif
