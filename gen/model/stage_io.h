/* stage_io.h: the named tensors that enter and leave each stage. */
#ifndef PEN_STAGE_IO_H
#define PEN_STAGE_IO_H

#include <stdint.h>

#include "gen/model/tensor_shapes.h"

struct pen_stages; /* gen/model/stages.h */

/* Where a tensor at a stage's border comes from, or goes to, besides a stage's number. */
enum { PEN_FROM_DATA = -1, PEN_FROM_START = -2 };

/* A named tensor that enters or leaves a stage in each microbatch. */
struct pen_stage_tensor {
  const struct pen_declared *declared;
  const char *name; /* the declared one, or NAME.grad */
  uint32_t stage;
  int64_t from, to; /* stages, or the above */
  struct pen_shape shape;
};

struct pen_stage_io {
  struct pen_stage_tensor *tensor; /* stage by stage: inputs of the step, what it takes, what it
                                gives, then the gradients of both */
  uint32_t count;
};

/* All named tensors at every stage's border; nothing is built. Fails (78) with the tensor's name
 * when blocks that are neighbours disagree, when a stage reads an input that does not go there, and
 * as pen_shape_of does. */
struct pen_stage_io pen_stage_io_of(const struct pen_topology *topology,
                                    const struct pen_stages *stages);

/* Fails (78) unless the block that is being emitted declares that it reads the input, and its stage
 * gets it. */
void pen_stage_io_check_reader(const struct pen_graph *graph, const struct pen_declared *declared);

#endif
