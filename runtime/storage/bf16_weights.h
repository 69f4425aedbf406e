/* copies.h: the bf16 copies that products read of f32 weights (plan.h, Types); and where a weight
 * goes when it comes. */
#ifndef PEN_BF16_WEIGHTS_H
#define PEN_BF16_WEIGHTS_H

#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* Makes a shard of a weight's copy, if it has one, whenever the value of the shard changes. */
void pen_weight_to_bf16(const struct pen_weight *weight, struct pen_shard shard,
                        unsigned char *arena);

/* Memory for all elements of a weight in f32, for a while: to be freed. Fails (PEN_EXIT_SYSTEM). */
float *pen_weight_buffer(const struct pen_weight *weight);

/* Where a rank takes in the f32 value of a weight: where it keeps it; or, where it keeps a shard
 * alone, or is the head of a tied matrix that reads a bf16 copy of another rank's, in memory for a
 * while. Null: the rank has no use for it. pen_value_loaded() when it has come: makes the copy,
 * too; a value_offset of UINT64_MAX says that the copy alone is wanted. Before the seal. */
float *pen_value_destination(const struct pen_plan *plan, uint32_t rank, unsigned char *arena,
                             uint32_t weight_index);
void pen_value_loaded(const struct pen_plan *plan, uint32_t replica, uint32_t rank,
                      unsigned char *arena, uint32_t weight_index, float *value);

#endif
