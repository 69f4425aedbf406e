/* stream_state.c: memory, streams and events of a rank (see stream_state.h). Where each of these is
 * in the arena is the generator's choice: plan.h, the device control block. */
#include "runtime/device/stream_state.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/plan/losses.h"

/* ---- pinned memory ---- */

size_t pen_pinned_stats_bytes(const struct pen_stream_state *state) {
  return pen_stats_entries(state->plan) * sizeof(double);
}

double *pen_pinned_stats(const struct pen_stream_state *state, uint64_t run_step) {
  return (double *)(state->pinned + PEN_STEPS_AHEAD * state->memory->staged_input_bytes +
                    run_step % PEN_STEPS_AHEAD * pen_aligned(pen_pinned_stats_bytes(state)));
}

uint32_t *pen_pinned_done(const struct pen_stream_state *state) {
  return (uint32_t *)(state->pinned +
                      PEN_STEPS_AHEAD * (state->memory->staged_input_bytes +
                                         pen_aligned(pen_pinned_stats_bytes(state))));
}

/* In the same cache line. */
uint32_t *pen_pinned_sent(const struct pen_stream_state *state) {
  return pen_pinned_done(state) + 1;
}

uint64_t *pen_pinned_damage(const struct pen_stream_state *state) {
  return (uint64_t *)(pen_pinned_done(state) + 2);
}

static unsigned char *read_buffer(const struct pen_stream_state *state) {
  return (unsigned char *)pen_pinned_done(state) + PEN_ALIGNMENT_BYTES;
}

/* ---- opening ---- */

void pen_device_check(const struct pen_device *device, const void *made, const char *what) {
  if (made == NULL || device->error() != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "device %s: %s: %s", device->name, what,
             device->error() == NULL ? "none" : device->error());
  }
}

static void *checked(const struct pen_device *device, void *made, const char *what) {
  pen_device_check(device, made, what);
  return made;
}

static void *make_stream(const struct pen_device *device) {
  return checked(device, device->stream_create(), "a stream");
}

static void *make_event(const struct pen_device *device) {
  return checked(device, device->event_create(), "an event");
}

struct pen_stream_state *pen_stream_open(const struct pen_plan *plan, uint32_t rank,
                                         uint32_t number, const struct pen_device *device,
                                         const char **what) {
  const struct pen_rank_memory *memory = &plan->memory[rank];
  struct pen_stream_state *state = pen_allocate(1, sizeof *state, "a rank's streams");
  const int count = device->count();
  *what = count > 0 ? device->open((int)(number % (uint32_t)count)) : NULL;
  pen_device_check(device, *what, "opening it");
  *state = (struct pen_stream_state){
      .device = device,
      .plan = plan,
      .memory = memory,
      .arena = checked(device, pen_transport_allocate(plan, rank, device), "the arena"),
      .pinned = checked(device, device->allocate_host(memory->pinned_bytes), "pinned memory"),
      .streams = {.compute = make_stream(device),
                  .side = make_stream(device),
                  .exchange = make_stream(device),
                  .fork = make_event(device),
                  .joined = make_event(device),
                  .exchange_fork = make_event(device)},
  };
  for (int i = 0; i < PEN_STEPS_AHEAD; i++) {
    state->step_done[i] = make_event(device);
  }
  for (int i = 0; i < PEN_ACTIONS_AHEAD; i++) {
    state->action_done[i] = make_event(device);
  }
  if (memory->snapshot_bytes != 0) {
    state->snapshot_stream = make_stream(device);
    state->snapshot_copied = make_event(device);
  }
  memset(state->pinned, 0, memory->pinned_bytes);
  device->zero(state->arena, memory->arena_bytes, state->streams.compute);
  device->stream_synchronize(state->streams.compute);
  pen_device_check(device, state, "clearing its memory");
  return state;
}

struct pen_stream_profile *pen_stream_profile_open(const struct pen_plan *plan) {
  struct pen_stream_profile *profile = pen_allocate(1, sizeof *profile, "a profile");
  profile->inputs = pen_allocate(plan->staged_input_count + 1u, sizeof *profile->inputs,
                                 "%u inputs", plan->staged_input_count);
  return profile;
}

/* ---- weights and moments ---- */

static const unsigned char *read_arena(const struct pen_stream_state *state, unsigned char *buffer,
                                       void *stream, uint64_t offset, size_t bytes) {
  pen_assert(bytes <= PEN_STAGING_BYTES && offset <= state->memory->arena_bytes &&
             bytes <= state->memory->arena_bytes - offset);
  state->device->copy_out(buffer, state->arena + offset, bytes, stream);
  state->device->stream_synchronize(stream);
  pen_check(state->device->error() == NULL, "the device %s: %s", state->device->name,
            state->device->error());
  return buffer;
}

const unsigned char *pen_stream_read(void *context, uint64_t offset, size_t bytes) {
  const struct pen_stream_state *state = context;
  return read_arena(state, read_buffer(state), state->streams.compute, offset, bytes);
}

const unsigned char *pen_stream_read_snapshot(void *context, uint64_t offset, size_t bytes) {
  const struct pen_stream_state *state = context;
  return read_arena(state, read_buffer(state) + PEN_STAGING_BYTES, state->snapshot_stream, offset,
                    bytes);
}
