/* tensor_shapes.h: the shapes of named tensors, over a step and in one microbatch. */
#ifndef PEN_TENSOR_SHAPES_H
#define PEN_TENSOR_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/base/error.h"
#include "gen/model/blocks.h"
#include "gen/model/graph.h"
#include "gen/topology/topology.h"

enum { PEN_SHAPE_EXTENTS_MAX = 4 };

/* A tensor's shape over a whole step (of one replica) and in one microbatch. */
struct pen_shape {
  uint32_t extent_count;
  uint64_t whole[PEN_SHAPE_EXTENTS_MAX], extent[PEN_SHAPE_EXTENTS_MAX];
  uint64_t elements, bytes; /* in one microbatch */
  uint8_t dtype;
};

/* The shape of a declared tensor. Fails (78), with family and tensor, if the declaration is not
 * valid or the extent to be split is not a multiple of the microbatches. */
struct pen_shape pen_shape_of(const struct pen_topology *topology, const struct pen_family *family,
                              const struct pen_declared *declared);
/* "(2, 8, 32) of f32" */
const char *pen_shape_text(const struct pen_shape *shape);

/* Whether the step has an input. */
bool pen_declared_wanted(const struct pen_topology *topology, const struct pen_declared *declared);
/* Fails (78) unless a value of the graph has the declared elements and dtype: "block BLOCK VERB
 * TENSOR ...". */
void pen_shape_check_value(const struct pen_graph *graph, const struct pen_declared *declared,
                           uint32_t value, const char *verb);

/* Stops (78) with the file, the family and the tensor in front of the message. */
#define PEN_FAIL_DECLARED(topology, family, declared, format, ...)                          \
  pen_stop(PEN_EXIT_TOPOLOGY, "%s: model.family = %s: tensor %s " format, (topology)->path, \
           (family)->name, (declared)->name, __VA_ARGS__)

#endif
