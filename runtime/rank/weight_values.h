/* weight_values.h: values of a rank's weights, for the library: read into, or set from, a tensor
 * that all ranks of a command see. */
#ifndef PEN_WEIGHT_VALUES_H
#define PEN_WEIGHT_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rank/rank.h"

/* Between two steps: copies what this rank writes of a tensor, as for a checkpoint, to its place in
 * `values`; the tensor's first weight is `weight`. Returns whether it has some of it. */
bool pen_weight_values_read(struct pen_rank *rank, uint32_t weight, float *values);

/* Sets what this rank keeps of the tensor, its copies, too. Moments stay. Allocates. */
void pen_weight_values_write(struct pen_rank *rank, uint32_t weight, const float *values);

#endif
