/* units.h: the units of a stage, and the segments that its backward recomputes. */
#ifndef PEN_UNITS_H
#define PEN_UNITS_H

#include "gen/model/graph.h"

struct pen_model_block; /* gen/model/blocks.h */

/* A run of forward ops. */
struct pen_segment {
  size_t first, past;    /* forward ops [first, past) */
  bool recomputed;       /* F runs it, and the backward again before the ops of its gradients */
  size_t fused_op_count; /* of its last ops: only the backward runs them, a fused loss
                            (fused_loss.h) */
};

struct pen_segments {
  struct pen_segment *segment; /* in the order of F; together all forward ops */
  size_t count;
};

/* The setting memory.recompute of a stage; PEN_RECOMPUTE_NONE without training. */
enum pen_recompute_kind pen_recompute_of(const struct pen_topology *topology, uint32_t stage);
/* Whether two successive blocks belong to one unit: a layer, the embedding, or the head. */
bool pen_same_unit(const struct pen_model_block *block, const struct pen_model_block *next);
/* The segments of a stage in training, by graph->recompute. */
struct pen_segments pen_segments_of(const struct pen_graph *graph);

#endif
