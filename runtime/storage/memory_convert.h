/* memory_convert.h: copies of ranks' states (memory_checkpoint.h) that were made with one plan of a
 * binary become copies for another one: a fallback has other ranks, with their tensors elsewhere.
 *
 * A copy is read as parts: the elements of a weight, or of a moment of it, that its rank has. bf16
 * copies and tied matrices are made from the weights. */
#ifndef PEN_MEMORY_CONVERT_H
#define PEN_MEMORY_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"
#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/memory_checkpoint.h"

struct pen_memory_part {
  uint32_t weight;
  enum pen_checkpoint_tensor tensor;
  struct pen_shard elements; /* f32 */
  uint64_t offset;           /* in the copy */
};

/* The parts of a rank's copy that no rank of an earlier replica has, in the order of the copy.
 * *parts is allocated, and freed by the caller. Returns how many. */
uint32_t pen_memory_parts(const struct pen_plan *plan, uint32_t global,
                          struct pen_memory_part **parts);

static inline size_t pen_memory_part_bytes(const struct pen_memory_part *part) {
  return (size_t)part->elements.count * sizeof(float);
}

/* Whether one of these ranks has something of that weight. */
bool pen_memory_part_is_needed(const struct pen_plan *plan, const struct pen_rank_set *ranks,
                               const struct pen_memory_part *part);

/* Copies that are being made for ranks of another plan. */
struct pen_memory_conversion;

/* Begins a copy of each of these ranks, of which there may be none. Allocates. */
struct pen_memory_conversion *pen_memory_conversion_open(const struct pen_memory_checkpoints *to);

/* Puts the bytes of a part where these ranks have its elements. */
void pen_memory_conversion_add(struct pen_memory_conversion *conversion,
                               const struct pen_memory_part *part, const unsigned char *bytes);

/* When all parts of all ranks were added: the copies are those of a step. */
void pen_memory_conversion_close(struct pen_memory_conversion *conversion, uint64_t step,
                                 const struct pen_state_position *position);

#endif
