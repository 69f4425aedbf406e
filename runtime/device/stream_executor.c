/* stream_executor.c: the steps of a rank on an asynchronous device (see stream_executor.h). */
#include "runtime/device/stream_executor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/comm/step_stats.h"
#include "runtime/device/device_error.h"
#include "runtime/device/graph.h"
#include "runtime/device/progress.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/optimizer_step.h"
#include "runtime/exec/route_guard.h"
#include "runtime/plan/losses.h"

static const long poll_ns = 50 * 1000; /* between two queries of a step's end */

/* The host writes the inputs of a step to pinned memory, as the data ops make them on the CPU; they
 * are copied to the device in one split; there, each data op copies its action's microbatch. */

/* Where the host writes the inputs of a step. */
static unsigned char *staging_host(const struct pen_stream_state *state, uint64_t run_step) {
  return state->pinned + run_step % PEN_STEPS_AHEAD * state->memory->staged_input_bytes;
}

static bool is_of_op(const struct pen_staged_input *input, uint32_t rank, uint16_t kind,
                     uint8_t dtype, const int64_t *dim) {
  return input->rank == rank && input->kind == kind && input->dtype == dtype &&
         memcmp(input->dim, dim, sizeof input->dim) == 0;
}

/* How many inputs from `first` on are outputs of its op. */
static uint32_t count_outputs(const struct pen_plan *plan, const struct pen_staged_input *first) {
  const struct pen_staged_input *past = plan->staged_inputs + plan->staged_input_count;
  uint32_t count = 1;
  while (first + count < past &&
         is_of_op(&first[count], first->rank, first->kind, first->dtype, first->dim)) {
    count++;
  }
  return count;
}

/* One op's outputs, for every microbatch. */
static void fill_op(struct pen_vm *vm, unsigned char *staging, uint32_t first, uint32_t outputs) {
  const struct pen_staged_input *input = &vm->plan->staged_inputs[first];
  const struct pen_bound_input *bound = &vm->stream_profile->inputs[first];
  struct pen_call call = {.prepared = bound->prepared};
  memcpy(call.dim, input->dim, sizeof call.dim);
  for (uint32_t m = 0; m < vm->profile->microbatch_count && bound->run != NULL; m++) {
    vm->data.microbatch_index = m;
    for (uint32_t k = 0; k < outputs; k++) {
      call.operand[input[k].operand] = staging +
                                       (input[k].offset - vm->memory->staged_input_offset) +
                                       m * input[k].microbatch_bytes;
    }
    bound->run(&call);
  }
}

/* Writes them: AdamW's settings, then each data op's outputs for every microbatch. */
static void staging_fill(struct pen_vm *vm) {
  unsigned char *staging = staging_host(vm->stream_state, vm->run_step);
  const struct pen_adamw settings =
      pen_adamw_of_step(&vm->plan->optimizer, vm->optimizer_step, vm->data.step_losses);
  memcpy(staging, &settings, sizeof settings);
  for (uint32_t i = 0, outputs; i < vm->plan->staged_input_count; i += outputs) {
    outputs = count_outputs(vm->plan, &vm->plan->staged_inputs[i]);
    fill_op(vm, staging, i, outputs);
  }
}

/* ---- data ops on the device ---- */

struct staged_op {
  struct pen_vm *vm;
  const struct pen_staged_input *input;
  uint32_t outputs;
};

static void copy_staged(const struct pen_call *call) {
  const struct staged_op *staged = call->prepared;
  const struct pen_vm *vm = staged->vm;
  for (uint32_t k = 0; k < staged->outputs; k++) {
    const struct pen_staged_input *input = &staged->input[k];
    const unsigned char *from =
        vm->arena + input->offset + vm->data.microbatch_index * input->microbatch_bytes;
    vm->device->copy(call->operand[input->operand], from, input->bytes, call->stream);
  }
}

static uint32_t index_of(const struct pen_vm *vm, const struct pen_op *op) {
  uint32_t i = 0;
  while (i < vm->plan->staged_input_count &&
         !is_of_op(&vm->plan->staged_inputs[i], vm->rank, op->kind, op->dtype, op->dim)) {
    i++;
  }
  pen_assert(i < vm->plan->staged_input_count);
  return i;
}

static struct pen_bound_input *staging_input(struct pen_vm *vm, const struct pen_op *op) {
  return pen_data_op(op->kind, op->dtype) == NULL ? NULL
                                                  : &vm->stream_profile->inputs[index_of(vm, op)];
}

/* See struct pen_executor. Allocates. */
static void staging_bind(struct pen_vm *vm, const struct pen_op *op, struct pen_bound_op *bound) {
  const uint32_t index = index_of(vm, op);
  struct staged_op *staged = malloc(sizeof *staged);
  pen_check(staged != NULL, "no memory for an input");
  vm->stream_profile->inputs[index] =
      (struct pen_bound_input){.run = pen_data_op(op->kind, op->dtype), .prepared = &vm->data};
  *staged = (struct staged_op){.vm = vm,
                               .input = &vm->plan->staged_inputs[index],
                               .outputs = count_outputs(vm->plan, &vm->plan->staged_inputs[index])};
  bound->run = copy_staged;
  bound->call.prepared = staged;
}

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
      const size_t entry = pen_first_entry(plan, vm->weights[i]);
      memcpy(stats + entry, from + entry,
             pen_tensor_count(&plan->weights[vm->weights[i]]) * sizeof *stats);
    }
  }
  for (uint32_t row = 0; row < pen_stats_rows(plan); row++) {
    if (pen_has_stats_row(plan, vm->profile, row, vm->endpoint->global)) {
      const size_t entry = pen_stats_row_first(plan, row);
      memcpy(stats + entry, from + entry, pen_stats_row_entries(plan, row) * sizeof *stats);
    }
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
  pen_fail_of_routes(vm);
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
                      staging_host(state, vm->run_step), vm->memory->staged_input_bytes, stream);
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
  staging_fill(vm);
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

static uint64_t *damage(const struct pen_vm *vm) { return pen_pinned_damage(vm->stream_state); }

const struct pen_executor pen_stream_executor = {
    .step = enqueue_step,
    .finish = finish_steps,
    .wait_action = wait_action,
    .bind_input = staging_bind,
    .input = staging_input,
    .damage = damage,
};
