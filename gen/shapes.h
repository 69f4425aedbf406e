/* shapes.h: named tensors: their shapes in a microbatch, from the batch's shape alone, and who gets them. */
#ifndef PEN_SHAPES_H
#define PEN_SHAPES_H

#include "gen/families/families.h"

enum { PEN_SHAPE_EXTENTS_MAX = 4 };

/* A tensor's shape over a whole step (of one replica) and in one microbatch. */
struct pen_shape {
  uint32_t extent_count;
  uint64_t whole[PEN_SHAPE_EXTENTS_MAX], extent[PEN_SHAPE_EXTENTS_MAX];
  uint64_t elements, bytes; /* in one microbatch */
};

/* The shape of what a family declares. Fails (78), naming family and tensor, when the declaration makes no sense or the extent to be
 * split is no multiple of the microbatches. */
struct pen_shape pen_shape_of(const struct pen_topology *topology, const struct pen_family *family,
                              const struct pen_declared *declared);
/* "(2, 8, 32) of f32" */
const char *pen_shape_text(const struct pen_shape *shape, int dtype);

/* Fails (78) unless a value of the graph has the elements and dtype that were declared: "block BLOCK VERB TENSOR ...". */
void pen_shape_check_value(const struct pen_graph *graph, const struct pen_declared *declared, uint32_t value, const char *verb);
/* Fails (78) unless the graph's stage gets that input. */
void pen_shape_check_receiver(const struct pen_graph *graph, const struct pen_declared *declared);

#endif
