/* described_ops.h: appends the ops of a block of a description. */
#ifndef PEN_DESCRIBED_OPS_H
#define PEN_DESCRIBED_OPS_H

#include "gen/families/described_kind.h"
#include "gen/model/blocks.h"

/* A run of the ops of a kind, between which and the next ops one value passes: a block. */
struct pen_kind_block {
  struct pen_block_kind block; /* the first member: the family knows its blocks by this alone */
  const struct pen_kind *kind;
  uint32_t first, past;  /* ops */
  uint32_t takes, gives; /* values of the kind; PEN_NONE: nothing */
  bool passes;           /* the gradient of what it takes is that of what it gives */
};

/* The member `emit` of such a block. */
uint32_t pen_described_emit(struct pen_graph *graph, uint32_t layer, uint32_t x);

#endif
