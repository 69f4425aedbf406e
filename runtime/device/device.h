/* device.h: runs the steps of a rank on an asynchronous device (kernels/device.h): an executor for
 * runtime/exec/, whose calls are enqueued.
 *
 * In: the bound actions of a rank in a profile (struct pen_vm). Out: the same results as with the
 * host executor; the host enqueues a step and continues, and reads a step's statistics when the
 * next step runs. The parts:
 *
 *   stream_state.h     memory, streams and events of a rank; copies between host and device
 *   graph.h            the actions of a step, captured once as a graph, or enqueued one by one
 *   stream_executor.h  a step: its inputs, in pinned memory; the graph; its statistics; errors of
 *                      the device
 *   progress.h         publishes how far the device is, for the watchdog
 *
 * A run may have several profiles: buckets, evaluation. Each has a graph of its own over the same
 * arena, staging memory and flags; a step of another profile begins when all ranks have ended the
 * one before, on the device too (pen_executor's finish()). */
#ifndef PEN_RUNTIME_DEVICE_H
#define PEN_RUNTIME_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/exec/exec.h"

/* Where actions are enqueued one by one, so few are ahead of the device: a stream takes about a
 * thousand calls, then blocks the host, which could not publish progress meanwhile. */
enum { PEN_ACTIONS_AHEAD = 4 };

/* A rank on its device, in all profiles. */
struct pen_stream_state {
  const struct pen_device *device;
  const struct pen_plan *plan;
  const struct pen_rank_memory *memory; /* of the rank */
  unsigned char *arena;                 /* on the device */
  unsigned char *pinned;                /* on the host */
  struct pen_streams streams;
  void *step_done[PEN_STEPS_AHEAD];     /* events, used in turn */
  void *action_done[PEN_ACTIONS_AHEAD]; /* events, where actions are enqueued one by one; in turn */
  void *snapshot_stream, *snapshot_copied; /* memory.snapshot: stream of the thread that writes;
                                              event: the copy is made. Else null */
  uint64_t begun, finished; /* steps of the run, of any profile: enqueued, and done */
  uint64_t actions_done;    /* of the steps that are done */
  uint64_t actions_begun;   /* one by one */
};

/* The same in one profile. */
struct pen_stream_profile {
  struct pen_bound_input *inputs; /* [plan->staged_input_count] */
  enum pen_graph_mode {
    PEN_GRAPH_MARKED,
    PEN_GRAPH_UNMARKED,
    PEN_GRAPH_SERIAL,
    PEN_GRAPH_PLAIN
  } graph_mode; /* graph.h */
  void *graph; /* of a step; also where another rank has none, and this one's is not used, but holds
                  communicators */
};

/* Fails, and says what, when something was not made or the device has an error. */
void pen_device_check(const struct pen_device *device, const void *made, const char *what);

#endif
