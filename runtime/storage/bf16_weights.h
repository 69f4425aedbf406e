/* bf16_weights.h: the bf16 copies of f32 weights that products read (plan.h, Types), and where a
 * weight is stored when it is loaded. */
#ifndef PEN_BF16_WEIGHTS_H
#define PEN_BF16_WEIGHTS_H

#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* Updates a shard of a weight's copy, if it has one, from the shard's value. */
void pen_weight_to_bf16(const struct pen_weight *weight, struct pen_shard shard,
                        unsigned char *arena);

/* Allocates all elements of a weight in f32; the caller frees it. Fails (PEN_EXIT_SYSTEM). */
float *pen_weight_buffer(const struct pen_weight *weight);

/* Where a rank loads the f32 value of a weight: its place in the arena; or a temporary buffer, if
 * the rank keeps only a shard, or is the head of a tied matrix and reads a bf16 copy of another
 * rank's weight. Null: the rank does not use the weight. Call pen_value_loaded() after loading: it
 * makes the copy and frees the buffer; with a value_offset of UINT64_MAX only the copy is kept.
 * Before pen_seal(). */
float *pen_value_destination(const struct pen_plan *plan, uint32_t global, unsigned char *arena,
                             uint32_t weight_index);
void pen_value_loaded(const struct pen_plan *plan, uint32_t global, unsigned char *arena,
                      uint32_t weight_index, float *value);

#endif
