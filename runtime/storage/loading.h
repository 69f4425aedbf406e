/* loading.h: where a process keeps what it loads or makes when it starts: weights, moments, and the
 * bf16 copies of f32 weights that products read (plan.h, Types). Before pen_seal(). */
#ifndef PEN_LOADING_H
#define PEN_LOADING_H

#include <stdbool.h>

#include "kernels/device.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/checkpoint_tensors.h"

enum { PEN_LOADING_ELEMENTS = 1 << 18 }; /* that are stored at a time */

/* The arena that a process fills, on a device that is open. */
struct pen_loading {
  const struct pen_plan *plan;
  uint32_t global;
  const struct pen_device *device;
  void *stream;         /* of the device: all is enqueued there */
  unsigned char *arena; /* on the device */
  float *chunk;         /* [PEN_LOADING_ELEMENTS], on the device */
};

/* Begins: allocates the chunk. And when all is enqueued: waits for it, and releases the chunk. Both
 * fail with what the device says (PEN_EXIT_SYSTEM). */
struct pen_loading pen_loading_open(const struct pen_plan *plan, uint32_t global,
                                    const struct pen_device *device, void *stream,
                                    unsigned char *arena);
void pen_loading_close(const struct pen_loading *to);

/* Whether the process keeps any of elements [first, first + count) of a weight, or of a moment of
 * it. */
bool pen_loading_keeps(const struct pen_loading *to, uint32_t weight_index,
                       enum pen_checkpoint_tensor part, uint64_t first, uint64_t count);

/* Stores these elements, which are on the device, where the process keeps them: in its value or its
 * shard of it and in the bf16 copy; in the moment; or, in the head of a tied matrix, in what it
 * reads of another rank's weight. */
void pen_loading_store(const struct pen_loading *to, uint32_t weight_index,
                       enum pen_checkpoint_tensor part, uint64_t first, uint64_t count,
                       const float *values);

/* Where a process reads all elements of a weight, or of a moment, from a file: their place in the
 * arena, where that is host memory and has all; else a buffer. Null: the process keeps none. Fails
 * (PEN_EXIT_SYSTEM). pen_loading_done() stores what was read, and frees the buffer. */
float *pen_loading_begin(const struct pen_loading *to, uint32_t weight_index,
                         enum pen_checkpoint_tensor part);
void pen_loading_done(const struct pen_loading *to, uint32_t weight_index,
                      enum pen_checkpoint_tensor part, float *values);

#endif
