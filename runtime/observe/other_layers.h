/* other_layers.h: while the command measure runs a plan of a few layers: reads as much memory as a
 * deployment's other layers would use between two passes over these, so that the caches hold no
 * more of a block's weights and activations than they do in the deployment. A deployment runs its
 * layers forward, then backward: between two uses of a layer lies, on average over the layers, one
 * pass over the others, but from none to two. So half of the microbatches find their block as the
 * last one left it. CPUs only. */
#ifndef PEN_OTHER_LAYERS_H
#define PEN_OTHER_LAYERS_H

#include <stdint.h>

#include "runtime/plan/plan.h"

struct pen_other_layers {
  unsigned char *memory; /* [bytes]; of this process alone: the caches are filled by each */
  uint64_t bytes;
  uint32_t last_stage; /* of the measured plan, whose backward is the first of a pass */
};

/* `layers`: of the deployment's model; `processes`: that run the measured plan at the same time,
 * each of which stands for a rank with its part of the layers. The bytes are the weights of the
 * other layers and one microbatch's activations; at most a process's part of the last cache, which
 * more would only fill again. Allocates, in the process that runs the plan; fails (71). */
void pen_other_layers_open(struct pen_other_layers *others, const struct pen_plan *measured,
                           uint32_t layers, uint32_t processes);

/* Before an action: reads them if it begins a forward or backward pass of a microbatch. */
void pen_other_layers_read(const struct pen_other_layers *others, const struct pen_action *action);

#endif
