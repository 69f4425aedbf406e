/* copies.h: the bf16 copies that products read of f32 weights (plan.h, Types). */
#ifndef PEN_COPIES_H
#define PEN_COPIES_H

#include "runtime/plan.h"

/* Makes the copy of one weight, or of all of a rank's, that have one. After the weights have come, and whenever they change. */
void pen_weight_narrow(const struct pen_weight *weight, unsigned char *arena);
void pen_weights_narrow(const struct pen_plan *plan, uint32_t rank, unsigned char *arena);

#endif
