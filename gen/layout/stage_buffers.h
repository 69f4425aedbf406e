/* stage_buffers.h: the buffers of a stage and microbatch, and the offsets of its values in them. */
#ifndef PEN_STAGE_BUFFERS_H
#define PEN_STAGE_BUFFERS_H

#include "gen/layout/split_buffers.h"
#include "gen/model/graph.h"
#include "gen/partition/partition.h"

/* The buffers of one stage and microbatch, one for each base. */
struct pen_stage_buffers {
  uint64_t *offset;               /* [value]: within the buffer of its base */
  uint8_t *base;                  /* [value]: need not be that of the graph: see stage_buffers.c */
  uint64_t bytes[PEN_BASES];      /* of one buffer; SCRATCH: see scratch */
  uint64_t scratch[PEN_PROGRAMS]; /* of one run of the program */
  bool
      gradient_from_f; /* the buffer of INPUT_GRADIENT is used from F on, by another value before */
  /* Last program that uses a boundary value (PEN_PROGRAM_F, _I, _W) when backward is split. */
  int input_last, output_last, output_gradient_last, input_gradient_last;
  /* Live bytes relative to those before the program: the most at any op, and what remains after it.
   */
  int64_t peak[PEN_PROGRAMS], remains[PEN_PROGRAMS];
};

struct pen_stage_buffers pen_stage_buffers_of(const struct pen_partition *partition,
                                              const struct pen_graph *graph,
                                              const struct pen_buffer_split *split);

/* Only `peak` and `remains`: they do not depend on the partition. */
struct pen_stage_buffers pen_stage_live_of(const struct pen_graph *graph);

#endif
