/* shapes.h: named tensors: their shapes in a microbatch, from the batch's shape alone, and who gets
 * them. */
#ifndef PEN_SHAPES_H
#define PEN_SHAPES_H

#include <stdio.h>

#include "gen/families/families.h"
#include "gen/topology/topology.h"

enum { PEN_SHAPE_EXTENTS_MAX = 4 };

/* A tensor's shape over a whole step (of one replica) and in one microbatch. */
struct pen_shape {
  uint32_t extent_count;
  uint64_t whole[PEN_SHAPE_EXTENTS_MAX], extent[PEN_SHAPE_EXTENTS_MAX];
  uint64_t elements, bytes; /* in one microbatch */
  uint8_t dtype;
};

/* The shape of what a family declares. Fails (78), naming family and tensor, when the declaration
 * makes no sense or the extent to be split is no multiple of the microbatches. */
struct pen_shape pen_shape_of(const struct pen_topology *topology, const struct pen_family *family,
                              const struct pen_declared *declared);
/* "(2, 8, 32) of f32" */
const char *pen_shape_text(const struct pen_shape *shape);

/* ---- the pass ---- */

/* Where a tensor at a stage's border comes from, or goes to, besides a stage's number. */
enum { PEN_FROM_DATA = -1, PEN_FROM_START = -2 };

/* A named tensor that enters or leaves a stage in each microbatch. */
struct pen_border {
  const struct pen_declared *declared;
  const char *name; /* the declared one, or NAME.grad */
  uint32_t stage;
  int64_t from, to; /* stages, or the above */
  struct pen_shape shape;
};

struct pen_shapes {
  struct pen_border *border; /* stage by stage: inputs of the step, what it takes, what it gives,
                                then the gradients of both */
  uint32_t count;
};

/* All named tensors at every stage's border; nothing is built. Fails (78) with the tensor's name
 * when blocks that are neighbours disagree, when a stage reads an input that does not go there, and
 * as pen_shape_of does. */
struct pen_shapes pen_shapes(const struct pen_topology *topology, const struct pen_stages *stages);

/* ---- for model.c: what blocks emit, against what is declared ---- */

/* Fails (78) unless a value of the graph has the elements and dtype that were declared: "block
 * BLOCK VERB TENSOR ...". */
void pen_shape_check_value(const struct pen_graph *graph, const struct pen_declared *declared,
                           uint32_t value, const char *verb);
/* Fails (78) unless the block at hand declares that it reads that input, and its stage gets it. */
void pen_shape_check_reader(const struct pen_graph *graph, const struct pen_declared *declared);

#endif
