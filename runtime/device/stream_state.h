/* stream_state.h: memory, streams and events of a rank on an asynchronous device. */
#ifndef PEN_STREAM_STATE_H
#define PEN_STREAM_STATE_H

#include "runtime/device/device.h"

/* Opens the device (of those of this host the one of that number, modulo their count), allocates
 * its memory, all zero, and the pinned memory, and makes streams and events. Fails with what the
 * device says. *what gets the line that says what was chosen. Allocates. */
struct pen_stream_state *pen_stream_open(const struct pen_plan *plan, uint32_t rank,
                                         uint32_t number, const struct pen_device *device,
                                         const char **what);

/* The state of one profile. Allocates. */
struct pen_stream_profile *pen_stream_profile_open(const struct pen_plan *plan);

/* Up to PEN_STAGING_BYTES of the rank's arena in host memory, until the next call; `context` is the
 * state. All steps are done. */
const unsigned char *pen_stream_read(void *context, uint64_t offset, size_t bytes);

/* The same for the thread that writes a snapshot, on the snapshot stream, while steps continue. */
const unsigned char *pen_stream_read_snapshot(void *context, uint64_t offset, size_t bytes);

/* Parts of the pinned memory. The statistics of a step, this replica's; how many actions of its
 * step the device has done; from how many of them all messages are sent. */
size_t pen_pinned_stats_bytes(const struct pen_stream_state *state);
double *pen_pinned_stats(const struct pen_stream_state *state, uint64_t run_step);
uint32_t *pen_pinned_done(const struct pen_stream_state *state);
uint32_t *pen_pinned_sent(const struct pen_stream_state *state);
uint64_t *pen_pinned_damage(const struct pen_stream_state *state); /* see route_guard.h */

#endif
