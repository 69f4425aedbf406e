/* progress.h: what the host of a rank on a device publishes for the watchdog: how far the device is
 * in its step, and which rank it waits for. */
#ifndef PEN_PROGRESS_H
#define PEN_PROGRESS_H

#include "runtime/device/device.h"

/* Of the step that runs: how many actions the device has done, and from how many of them all
 * messages are sent. */
struct pen_progress_counters {
  uint32_t done, sent;
};

/* What the device has written last. */
struct pen_progress_counters pen_progress_read(const struct pen_stream_state *state);

/* Publishes them, and whom the rank waits for. */
void pen_progress_publish(struct pen_vm *vm, struct pen_progress_counters counters);

/* Ends a wait in which the host did nothing but publish. */
void pen_progress_end(struct pen_vm *vm);

/* Waits for an event after an action, where actions are enqueued one by one, and publishes
 * meanwhile. False: the run was aborted. */
bool pen_progress_wait(struct pen_vm *vm, void *event);

#endif
