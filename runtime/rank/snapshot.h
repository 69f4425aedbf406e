/* snapshot.h: memory.snapshot: a checkpoint written while training continues.
 *
 * The plan reserves a buffer for a copy of each rank's weights and moments: all its tensors that a
 * checkpoint has, in model order, value before moments, each aligned. A rank copies them between
 * two steps and continues; a separate thread, created before the seal, writes the copy. The threads
 * of all ranks save together as ranks do. While they write, a further save waits.
 *
 * On an asynchronous device the copy is made on the device, after the step and before the next on
 * the compute stream, so that the host waits for nothing; the thread copies it to the host split by
 * split, on a stream and through pinned memory of its own. */
#ifndef PEN_SNAPSHOT_H
#define PEN_SNAPSHOT_H

#include <stdbool.h>

#include "runtime/device/device.h"
#include "runtime/rank/save.h"

/* Whether the plan reserves the buffer. */
bool pen_snapshot_planned(const struct pen_plan *plan);

/* A rank, before the seal: starts its thread. `state` is null on the CPU. Allocates. */
void pen_snapshot_open(const struct pen_endpoint *endpoint, struct pen_stream_state *state);

/* Copies what is to be saved and lets the thread write it, once the save before has ended. False:
 * the run was aborted. */
bool pen_snapshot_save(const struct pen_endpoint *endpoint, const struct pen_saving *saving);

/* Waits until no save is being written. False: the run was aborted. */
bool pen_snapshot_wait(const struct pen_endpoint *endpoint);

#endif
