/* graph.c: the actions of a step on a device (see graph.h). No address and no number in them
 * changes from step to step. */
#include "runtime/device/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/environment.h"
#include "runtime/base/futex_counter.h"
#include "runtime/comm/transport_base.h"
#include "runtime/device/progress.h"
#include "runtime/device/stream_state.h"

/* ---- modes ---- */

static const struct mode {
  const char *name;
  bool graph;  /* a step is one */
  bool marks;  /* progress counters */
  bool serial; /* all is on one stream */
} modes[] = {[PEN_GRAPH_MARKED] = {"marked", .graph = true, .marks = true},
             [PEN_GRAPH_UNMARKED] = {"unmarked", .graph = true},
             [PEN_GRAPH_SERIAL] = {"serial", .graph = true, .marks = true, .serial = true},
             [PEN_GRAPH_PLAIN] = {"plain", .marks = true}};
enum { MODES = sizeof modes / sizeof *modes };

static const struct mode *mode_of(const struct pen_vm *vm) {
  return &modes[vm->stream_profile->graph_mode];
}

static void use_mode(struct pen_vm *vm, enum pen_graph_mode mode) {
  vm->stream_profile->graph_mode = mode;
  vm->transport->serial = modes[mode].serial;
  vm->streams = vm->stream_state->streams;
  if (modes[mode].serial) {
    vm->streams.side = vm->streams.exchange = vm->streams.compute;
  }
}

/* The mode to begin with. */
static enum pen_graph_mode first_mode(void) {
  const char *asked = pen_environment("PEN_GRAPH");
  int mode = 0;
  while (asked != NULL && strcmp(asked, modes[mode].name) != 0) {
    mode++;
    pen_assert(mode < MODES);
  }
  return (enum pen_graph_mode)mode;
}

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
  const bool signals = mode_of(vm)->marks;
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
  bool *ran = pen_allocate(vm->program->program_count + 1u, sizeof *ran, "%u programs",
                           vm->program->program_count);
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
  *pen_pinned_damage(state) = 0; /* a backward may have read zeros as routes */
}

/* ---- graphs ---- */

bool pen_graph_is_used(const struct pen_vm *vm) {
  return vm->stream_profile->graph != NULL && mode_of(vm)->graph;
}

/* The modes that were refused, and why. */
struct refusals {
  struct {
    const char *mode;
    char why[200];
  } list[MODES];
  uint32_t count;
};

static void refuse(struct refusals *refusals, const char *mode, const char *why) {
  refusals->list[refusals->count].mode = mode;
  snprintf(refusals->list[refusals->count++].why, sizeof refusals->list->why, "%s", why);
}

/* "marked, unmarked: WHY; serial: WHY" */
static void write_refusals(FILE *out, const struct refusals *refusals) {
  for (uint32_t i = 0; i < refusals->count; i++) {
    const char *why = refusals->list[i].why;
    const bool last = i + 1 == refusals->count;
    fputs(refusals->list[i].mode, out);
    if (!last && strcmp(why, refusals->list[i + 1].why) == 0) {
      fputs(", ", out);
    } else {
      fprintf(out, ": %s%s", why, last ? "" : "; ");
    }
  }
}

/* One line, in one write: other ranks may write at the same time. `none`: why no mode of a graph is
 * used, if that is not for refusals. */
static void report(const struct pen_vm *vm, const struct refusals *refusals, const char *none,
                   uint64_t capture_ns) {
  const bool graph = pen_graph_is_used(vm);
  if (!vm->transport->announces || (graph && refusals->count == 0 && vm->endpoint->global != 0)) {
    return;
  }
  char *line = NULL;
  size_t line_bytes = 0;
  FILE *out = open_memstream(&line, &line_bytes);
  pen_check(out != NULL, "no memory for a line");
  fprintf(out, "%s: rank %u: a step of %s ", vm->plan->name, vm->endpoint->global,
          vm->profile->name);
  if (graph) {
    const struct pen_graph_figures figures = vm->device->graph_figures(vm->stream_profile->graph);
    fprintf(out, "is one graph (%s): %zu nodes, %.1f ms to capture, %.1f MiB%s", mode_of(vm)->name,
            figures.nodes, (double)capture_ns / 1e6, (double)figures.bytes / (1 << 20),
            refusals->count == 0 ? "" : "; refused: ");
    write_refusals(out, refusals);
  } else {
    fprintf(out, "cannot be one graph (%s", none == NULL ? "" : none);
    write_refusals(out, refusals);
    fprintf(out, "); its actions are enqueued one by one");
  }
  pen_check(fclose(out) == 0, "no memory for a line");
  pen_say_line(line);
  free(line);
}

static void draw(const struct pen_vm *vm) {
  const char *path = pen_environment("PEN_GRAPH_DOT");
  if (path != NULL && vm->endpoint->global == 0 && vm->transport->first == NULL &&
      vm->stream_profile->graph != NULL) {
    vm->device->graph_write(vm->stream_profile->graph, path);
    pen_device_check(vm->device, path, "PEN_GRAPH_DOT");
  }
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

void pen_graph_make(struct pen_vm *vm) {
  struct pen_stream_profile *profile = vm->stream_profile;
  const struct pen_transport_ops *transport = vm->transport->ops;
  struct refusals refusals = {.count = 0};
  uint64_t began_ns = 0;
  use_mode(vm, first_mode());
  atomic_store_explicit(&vm->endpoint->self->bootstrap_stage,
                        pen_bootstrap_stage_set(PEN_CONNECT_GRAPH, 0, PEN_NONE),
                        memory_order_relaxed);
  const char *none =
      mode_of(vm)->graph ? transport->cannot_capture(vm->transport) : "PEN_GRAPH asks for it";
  if (none != NULL) {
    use_mode(vm, PEN_GRAPH_PLAIN);
  }
  while (profile->graph == NULL && mode_of(vm)->graph) {
    const char *why;
    began_ns = pen_now_ns();
    profile->graph = capture(vm, &why);
    if (profile->graph == NULL) {
      refuse(&refusals, mode_of(vm)->name, why);
      use_mode(vm, profile->graph_mode + 1);
    }
  }
  const uint64_t capture_ns = pen_now_ns() - began_ns;
  draw(vm);
  if (!transport->all_captured(vm->transport, profile->graph != NULL) && profile->graph != NULL) {
    use_mode(vm, PEN_GRAPH_PLAIN);
    refusals.count = 0;
    none = "another rank's cannot";
  }
  report(vm, &refusals, none, capture_ns);
}

bool pen_graph_enqueue(struct pen_vm *vm) {
  if (!pen_graph_is_used(vm)) {
    return enqueue_actions(vm, false);
  }
  vm->device->graph_launch(vm->stream_profile->graph, vm->streams.compute);
  return true;
}
