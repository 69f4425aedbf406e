/* graph.c: the actions of a step on a device (see graph.h). No address and no number in them
 * changes from step to step. */
#include "runtime/device/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/transport_base.h"
#include "runtime/device/progress.h"
#include "runtime/device/stream_state.h"

/* ---- actions ---- */

/* The progress counters: both are 0 between steps. */
static void signal_progress(const struct pen_vm *vm, const struct pen_action *action) {
  const struct pen_stream_state *state = vm->stream_state;
  const uint32_t done = (uint32_t)(action - vm->program->actions) + 1;
  void *send_stream = vm->transport->ops->send_stream(vm->transport, action);
  if (send_stream != NULL) {
    state->device->signal(pen_pinned_sent(state), done, send_stream);
  }
  state->device->signal(pen_pinned_done(state), done, state->streams.compute);
}

/* After an action that was enqueued by itself: waits until few enough are ahead of the device. */
static bool throttle(struct pen_vm *vm) {
  struct pen_stream_state *state = vm->stream_state;
  state->device->event_record(state->action_done[state->actions_begun++ % PEN_ACTIONS_AHEAD],
                              state->streams.compute);
  return pen_progress_wait(vm, state->action_done[state->actions_begun % PEN_ACTIONS_AHEAD]);
}

static bool enqueue_actions(struct pen_vm *vm, bool captures) {
  const struct pen_stream_state *state = vm->stream_state;
  const struct pen_action *action = vm->program->actions,
                          *past = action + vm->program->action_count;
  const bool signals = vm->stream_profile->graph_mode != PEN_GRAPH_WITHOUT_PROGRESS;
  bool going = true;
  for (; going && action < past; action++) {
    pen_assert(action->kind < PEN_ACTION_KINDS);
    vm->action = action;
    going = vm->handlers[action->kind](vm, action);
    if (signals && going) {
      signal_progress(vm, action);
    }
    going = going && (captures || throttle(vm));
  }
  vm->action = NULL;
  if (!going) {
    return false;
  }
  vm->transport->ops->end_step(vm->transport);
  if (signals) {
    state->device->signal(pen_pinned_sent(state), 0, state->streams.compute);
    state->device->signal(pen_pinned_done(state), 0, state->streams.compute);
  }
  return true;
}

void pen_graph_warm(struct pen_vm *vm) {
  const struct pen_stream_state *state = vm->stream_state;
  const struct pen_action *action = vm->program->actions,
                          *past = action + vm->program->action_count;
  const struct pen_transport_ops *transport = vm->transport->ops;
  bool *ran = calloc(vm->program->program_count + 1u, sizeof *ran);
  pen_check(ran != NULL, "no memory for %u programs", vm->program->program_count);
  vm->transport->ops = &pen_transport_alone;
  for (; action < past; action++) {
    if (action->kind > PEN_W) {
      pen_handlers[action->kind](vm, action);
    } else if (!ran[action->program]) {
      const struct pen_program *program = &vm->program->programs[action->program];
      ran[action->program] = true;
      vm->data.microbatch_index = action->microbatch;
      pen_vm_call(vm, program->first_op, program->op_count, &vm->program->frames[action->frame]);
    }
  }
  free(ran);
  vm->transport->ops = transport;
  state->device->zero(state->arena, state->memory->arena_bytes, state->streams.compute);
  state->device->stream_synchronize(state->streams.compute);
  pen_device_check(state->device, state, "trying its programs");
}

/* ---- graphs ---- */

static void print_uncaptured(const struct pen_vm *vm, const char *why) {
  const bool one_by_one = vm->stream_profile->graph_mode == PEN_GRAPH_NONE;
  fprintf(stderr, "%s: rank %u: a step of %s %scannot be one graph (%s); %s\n", vm->plan->name,
          vm->endpoint->global, vm->profile->name, one_by_one ? "" : "with its progress ", why,
          one_by_one ? "its actions are enqueued one by one" : "trying without it");
}

/* Captures the actions once; null: *why says why not. */
static void *capture(struct pen_vm *vm, const char **why) {
  const struct pen_stream_state *state = vm->stream_state;
  state->device->capture_begin(state->streams.compute);
  enqueue_actions(vm, true);
  void *graph = state->device->capture_end(state->streams.compute, why);
  const char *wrong = vm->transport->ops->clear_error(vm->transport);
  if (wrong != NULL && graph != NULL) {
    state->device->graph_destroy(graph); /* it holds communicators, which are to be released */
    graph = NULL;
  }
  *why = wrong == NULL ? *why : wrong;
  return graph;
}

/* The mode to begin with. */
static int first_mode(void) {
  static const char *const names[] = {[PEN_GRAPH_WITH_PROGRESS] = "marked",
                                      [PEN_GRAPH_WITHOUT_PROGRESS] = "unmarked",
                                      [PEN_GRAPH_NONE] = "plain"};
  const char *asked = getenv("PEN_GRAPH");
  int mode = PEN_GRAPH_WITH_PROGRESS;
  while (asked != NULL && mode <= PEN_GRAPH_NONE && strcmp(asked, names[mode]) != 0) {
    mode++;
  }
  if (mode > PEN_GRAPH_NONE) {
    pen_fail(PEN_EXIT_USAGE, "PEN_GRAPH = %s: \"marked\", \"unmarked\" or \"plain\"", asked);
  }
  return mode;
}

void pen_graph_make(struct pen_vm *vm) {
  struct pen_stream_profile *profile = vm->stream_profile;
  const struct pen_transport_ops *transport = vm->transport->ops;
  profile->graph_mode = first_mode();
  atomic_store_explicit(&vm->endpoint->self->bootstrap_stage,
                        pen_bootstrap_stage_set(PEN_CONNECT_GRAPH, 0, PEN_NONE),
                        memory_order_relaxed);
  const char *why = profile->graph_mode == PEN_GRAPH_NONE
                        ? "PEN_GRAPH asks for it"
                        : transport->cannot_capture(vm->transport);
  if (why != NULL) {
    profile->graph_mode = PEN_GRAPH_NONE;
    print_uncaptured(vm, why);
  }
  while (profile->graph == NULL && profile->graph_mode != PEN_GRAPH_NONE) {
    profile->graph = capture(vm, &why);
    if (profile->graph == NULL) {
      profile->graph_mode++;
      print_uncaptured(vm, why);
    }
  }
  if (!transport->all_captured(vm->transport, profile->graph != NULL) && profile->graph != NULL) {
    profile->graph_mode = PEN_GRAPH_NONE;
    print_uncaptured(vm, "another rank's cannot");
  }
}

bool pen_graph_is_used(const struct pen_vm *vm) {
  return vm->stream_profile->graph != NULL && vm->stream_profile->graph_mode != PEN_GRAPH_NONE;
}

bool pen_graph_enqueue(struct pen_vm *vm) {
  if (!pen_graph_is_used(vm)) {
    return enqueue_actions(vm, false);
  }
  vm->device->graph_launch(vm->stream_profile->graph, vm->streams.compute);
  return true;
}
