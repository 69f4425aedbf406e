/* stage_io.h: the named tensors that enter and leave each stage. */
#ifndef PEN_STAGE_IO_H
#define PEN_STAGE_IO_H

#include <stdint.h>

#include "gen/model/tensor_shapes.h"

struct pen_stages; /* gen/model/stages.h */

/* The source or destination of a tensor, if it is not a stage. */
enum { PEN_FROM_DATA = -1, PEN_FROM_START = -2 };

/* A named tensor that enters or leaves a stage in each microbatch. */
struct pen_stage_tensor {
  const struct pen_declared *declared;
  const char *name; /* as declared, or NAME.grad */
  uint32_t stage;
  int64_t from, to; /* stages, or one of the above */
  struct pen_shape shape;
};

struct pen_stage_io {
  struct pen_stage_tensor
      *tensor; /* by stage: inputs of the step, its input, its output, then the gradients of both */
  uint32_t count;
};

/* All named tensors that enter or leave a stage; builds no graph. Fails (78) with the tensor's name
 * if neighbouring blocks disagree or a stage reads an input that does not go to it, and as
 * pen_shape_of(). */
struct pen_stage_io pen_stage_io_of(const struct pen_topology *topology,
                                    const struct pen_stages *stages);

/* Fails (78) unless the current block declares that it reads the input and the input goes to its
 * stage. */
void pen_stage_io_check_reader(const struct pen_graph *graph, const struct pen_declared *declared);

#endif
