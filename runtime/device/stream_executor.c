/* stream_executor.c: the steps of a rank on an asynchronous device (see stream_executor.h). */
#include "runtime/device/stream_executor.h"

#include <string.h>
#include <time.h>

#include "runtime/comm/step_stats.h"
#include "runtime/device/device_error.h"
#include "runtime/device/graph.h"
#include "runtime/device/input_staging.h"
#include "runtime/device/progress.h"
#include "runtime/device/stream_state.h"

static const long poll_ns = 50 * 1000; /* between two queries of a step's end */

void pen_stream_connect(struct pen_vm *vm) {
  vm->transport->ops->connect(vm->transport);
  if (vm->trace == NULL) {
    pen_graph_make(vm);
  }
}

/* The rank's own entries of a step's statistics, for all to read. */
static void publish_stats(struct pen_vm *vm, uint64_t run_step) {
  const struct pen_plan *plan = vm->plan;
  const double *from = pen_pinned_stats(vm->stream_state, run_step);
  double *stats =
      pen_endpoint_step_stats(vm->endpoint, run_step) + pen_step_stats_first(plan, vm->replica);
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    if (pen_vm_owns_weight(vm, vm->weights[i])) {
      stats[vm->weights[i]] = from[vm->weights[i]];
    }
  }
  if (pen_has_losses(plan, vm->profile, vm->endpoint->global)) {
    memcpy(stats + plan->weight_count, from + plan->weight_count, plan->loss_count * sizeof *stats);
  }
  pen_endpoint_publish(vm->endpoint, run_step);
}

static void set_on_device(struct pen_vm *vm, bool on) {
  atomic_store_explicit(&vm->endpoint->self->on_device, on, memory_order_relaxed);
}

/* Waits until the device has done the oldest step that is not, and publishes it. The counters are
 * read before the event: they are of that step. */
static bool finish_step(struct pen_vm *vm) {
  struct pen_stream_state *state = vm->stream_state;
  const struct timespec pause = {.tv_nsec = poll_ns};
  bool done, going;
  set_on_device(vm, true);
  do {
    const struct pen_progress_counters counters = pen_progress_read(state);
    done = state->device->event_query(state->step_done[state->finished % PEN_STEPS_AHEAD]);
    if (!done) {
      pen_progress_publish(vm, counters);
      nanosleep(&pause, NULL);
    }
    going = pen_device_is_well(vm);
  } while (going && !done);
  set_on_device(vm, false);
  if (!going) {
    return false;
  }
  publish_stats(vm, state->finished);
  state->actions_done += vm->program->action_count;
  state->finished++;
  atomic_fetch_add_explicit(&vm->endpoint->self->sent_bytes, vm->sent_bytes, memory_order_relaxed);
  pen_progress_publish(vm, (struct pen_progress_counters){0, 0});
  pen_progress_end(vm);
  return true;
}

static bool finish_steps(struct pen_vm *vm) {
  bool going = true;
  while (going && vm->stream_state->finished < vm->stream_state->begun) {
    going = finish_step(vm);
  }
  return going;
}

/* Enqueues a step. Any call may block until the device has done some of what was enqueued before.
 */
static bool enqueue_calls(struct pen_vm *vm) {
  const struct pen_stream_state *state = vm->stream_state;
  void *stream = vm->streams.compute;
  vm->device->copy_in(vm->arena + vm->memory->staged_input_offset,
                      pen_staging_host(state, vm->run_step), vm->memory->staged_input_bytes,
                      stream);
  if (!pen_graph_enqueue(vm)) {
    return false;
  }
  vm->device->copy_out(pen_pinned_stats(state, vm->run_step),
                       vm->step_stats + pen_step_stats_first(vm->plan, vm->replica),
                       pen_pinned_stats_bytes(state), stream);
  vm->device->event_record(state->step_done[vm->run_step % PEN_STEPS_AHEAD], stream);
  return true;
}

/* A host that enqueues action by action is near its device as it is, and does not leave a step
 * before that is done: what it waits for next, of other hosts, may be after this step's actions on
 * their devices. */
static bool enqueue_step(struct pen_vm *vm) {
  struct pen_stream_state *state = vm->stream_state;
  const uint64_t ahead = pen_graph_is_used(vm) ? PEN_STEPS_AHEAD : 1;
  pen_staging_fill(vm);
  set_on_device(vm, true);
  bool going = enqueue_calls(vm);
  set_on_device(vm, false);
  if (!going) {
    return false;
  }
  pen_device_poll_error(vm);
  state->begun++;
  while (going && state->finished + ahead <= state->begun) {
    going = finish_step(vm);
  }
  return going;
}

/* For --trace: waits for the event that the next action enqueued by itself records again. */
static bool wait_action(struct pen_vm *vm) {
  struct pen_stream_state *state = vm->stream_state;
  void *event = state->action_done[state->actions_begun % PEN_ACTIONS_AHEAD];
  vm->device->event_record(event, vm->streams.compute);
  return pen_progress_wait(vm, event);
}

const struct pen_executor pen_stream_executor = {
    .step = enqueue_step,
    .finish = finish_steps,
    .wait_action = wait_action,
    .bind_input = pen_staging_bind,
    .input = pen_staging_input,
};
