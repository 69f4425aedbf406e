/* copies.h: the bf16 copies that products read of f32 weights (plan.h, Types). */
#ifndef PEN_COPIES_H
#define PEN_COPIES_H

#include "runtime/plan.h"

/* Makes the copy of one weight, or of all of a rank's, that have one. After the weights have come, and whenever they change. */
void pen_weight_narrow(const struct pen_weight *weight, unsigned char *arena);
void pen_weights_narrow(const struct pen_plan *plan, uint32_t rank, unsigned char *arena);

/* Where a rank takes in the f32 value of a weight: where it keeps it; or, for the head of a tied matrix that reads a bf16 copy of another
 * rank's, in memory for a while. Null: the rank has no use for it. pen_value_taken() when it has come. Before the seal. */
float *pen_value_take(const struct pen_plan *plan, uint32_t rank, unsigned char *arena, uint32_t weight_index);
void pen_value_taken(const struct pen_plan *plan, uint32_t rank, unsigned char *arena, uint32_t weight_index, float *value);

#endif
