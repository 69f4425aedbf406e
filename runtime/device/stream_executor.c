/* queue.c: a rank's steps on a device that only enqueues (see queue.h). */
#include "kernels/kernels.h"
#include "runtime/device/stream_executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/device/link.h"
#include "runtime/comm/failure_text.h"
#include "runtime/comm/step_stats.h"

static const long poll_ns = 50 * 1000; /* between two looks at a step's end */
enum { SPEAK_PAUSES = 100 };           /* of 10 ms, for the watch to say who is lost */

/* ---- pinned memory ---- */

/* Of this rank's replica: what the host wants of a board. */
static size_t board_bytes(const struct pen_stream_state *queue) {
  return (queue->plan->weight_count + (size_t)queue->plan->loss_count) * sizeof(double);
}

static double *board_here(const struct pen_stream_state *queue, uint64_t step) {
  return (double *)(queue->pinned + PEN_STEPS_AHEAD * queue->memory->staged_input_bytes +
                    step % PEN_STEPS_AHEAD * pen_aligned(board_bytes(queue)));
}

static uint32_t *progress_here(const struct pen_stream_state *queue) {
  return (uint32_t *)(queue->pinned + PEN_STEPS_AHEAD * (queue->memory->staged_input_bytes +
                                                         pen_aligned(board_bytes(queue))));
}

/* Behind it, in the same cache line: rows whose messages have left. */
static uint32_t *left_here(const struct pen_stream_state *queue) {
  return progress_here(queue) + 1;
}

static unsigned char *staging_here(const struct pen_stream_state *queue) {
  return (unsigned char *)progress_here(queue) + PEN_ALIGNMENT_BYTES;
}

static unsigned char *staging_aside(const struct pen_stream_state *queue) {
  return staging_here(queue) + PEN_STAGING_BYTES;
}

/* ---- opening ---- */

static void must_be_well(const struct pen_device *device, const void *made, const char *what) {
  if (made == NULL || device->error() != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "device %s: %s: %s", device->name, what,
             device->error() == NULL ? "none" : device->error());
  }
}

static void *must_open(const struct pen_device *device, void *made, const char *what) {
  must_be_well(device, made, what);
  return made;
}

struct pen_stream_state *pen_stream_open(const struct pen_plan *plan, uint32_t rank, uint32_t place,
                                         const struct pen_device *device, const char **what) {
  struct pen_stream_state *queue = calloc(1, sizeof *queue);
  pen_check(queue != NULL, "no memory for a queue");
  const int count = device->count();
  *what = count > 0 ? device->open((int)(place % (uint32_t)count)) : NULL;
  must_be_well(device, *what, "opening it");
  *queue = (struct pen_stream_state){
      .device = device,
      .plan = plan,
      .memory = &plan->memory[rank],
      .arena = must_open(device, pen_link_allocate(plan, rank, device), "the arena"),
      .pinned = must_open(device, device->allocate_host(plan->memory[rank].pinned_bytes),
                          "pinned memory"),
      .stream = must_open(device, device->stream_create(), "a stream"),
      .side = must_open(device, device->stream_create(), "a stream"),
      .fork = must_open(device, device->event_create(), "an event"),
      .join = must_open(device, device->event_create(), "an event"),
  };
  for (int i = 0; i < PEN_STEPS_AHEAD; i++) {
    queue->done[i] = must_open(device, device->event_create(), "an event");
  }
  for (int i = 0; i < PEN_ACTIONS_AHEAD; i++) {
    queue->row_done[i] = must_open(device, device->event_create(), "an event");
  }
  if (queue->memory->snapshot_bytes != 0) {
    queue->aside = must_open(device, device->stream_create(), "a stream");
    queue->copied = must_open(device, device->event_create(), "an event");
  }
  memset(queue->pinned, 0, plan->memory[rank].pinned_bytes);
  device->zero(queue->arena, plan->memory[rank].arena_bytes, queue->stream);
  device->stream_synchronize(queue->stream);
  must_be_well(device, queue, "clearing its memory");
  return queue;
}

/* ---- weights and moments ---- */

void pen_stream_load(struct pen_stream_state *queue, const unsigned char *here) {
  const uint64_t first = queue->memory->receive_bytes;
  queue->device->copy_in(queue->arena + first, here + first, queue->memory->persistent_end - first,
                         queue->stream);
  queue->device->stream_synchronize(queue->stream);
  must_be_well(queue->device, queue, "loading weights");
}

static const unsigned char *look(const struct pen_stream_state *queue, unsigned char *here,
                                 void *stream, uint64_t offset, size_t bytes) {
  pen_assert(bytes <= PEN_STAGING_BYTES && offset <= queue->memory->arena_bytes &&
             bytes <= queue->memory->arena_bytes - offset);
  queue->device->copy_out(here, queue->arena + offset, bytes, stream);
  queue->device->stream_synchronize(stream);
  pen_check(queue->device->error() == NULL, "the device %s: %s", queue->device->name,
            queue->device->error());
  return here;
}

const unsigned char *pen_stream_look(void *context, uint64_t offset, size_t bytes) {
  const struct pen_stream_state *queue = context;
  return look(queue, staging_here(queue), queue->stream, offset, bytes);
}

const unsigned char *pen_stream_look_aside(void *context, uint64_t offset, size_t bytes) {
  const struct pen_stream_state *queue = context;
  return look(queue, staging_aside(queue), queue->aside, offset, bytes);
}

/* ---- rows ---- */

/* The words that tell of the device's progress: both are 0 between steps. */
static void mark_row(const struct pen_vm *vm, const struct pen_action *row) {
  const struct pen_stream_state *queue = vm->queue;
  const struct pen_link *link = vm->queued.link;
  const uint32_t done = (uint32_t)(row - vm->program->actions) + 1;
  void *leaving = link == NULL ? NULL : link->kind->leaving(link, row);
  if (leaving != NULL) {
    queue->device->signal(left_here(queue), done, leaving);
  }
  queue->device->signal(progress_here(queue), done, queue->stream);
}

/* Behind a row that was enqueued by itself: waits until the device is not too far behind. */
static bool keep_near(struct pen_vm *vm) {
  struct pen_stream_state *queue = vm->queue;
  queue->device->event_record(queue->row_done[queue->rows_begun++ % PEN_ACTIONS_AHEAD],
                              queue->stream);
  return pen_stream_await_action(vm, queue->row_done[queue->rows_begun % PEN_ACTIONS_AHEAD]);
}

/* False: a rank was lost, and nothing more is to be enqueued on a device that may take no more. */
static bool enqueue_rows(struct pen_vm *vm, bool captures) {
  const struct pen_stream_state *queue = vm->queue;
  const struct pen_action *row = vm->program->actions, *past = row + vm->program->action_count;
  bool marked = vm->queued.way != PEN_GRAPH_WITHOUT_PROGRESS, going = true;
  for (; going && row < past; row++) {
    pen_assert(row->kind < PEN_ACTION_KINDS);
    vm->row = row;
    going = vm->handlers[row->kind](vm, row);
    if (marked && going) {
      mark_row(vm, row);
    }
    going = going && (captures || keep_near(vm));
  }
  vm->row = NULL;
  if (!going) {
    return false;
  }
  if (vm->queued.link != NULL) {
    vm->queued.link->kind->end(vm->queued.link);
  }
  if (marked) {
    queue->device->signal(left_here(queue), 0, queue->stream);
    queue->device->signal(progress_here(queue), 0, queue->stream);
  }
  return true;
}

static void say_uncaptured(const struct pen_vm *vm, const char *why) {
  const bool plain = vm->queued.way == PEN_GRAPH_NONE;
  fprintf(stderr, "%s: rank %u: a step of %s %scannot be one graph (%s); %s\n", vm->plan->name,
          vm->transport->global, vm->profile->name, plain ? "" : "with its progress ", why,
          plain ? "its rows are enqueued one by one" : "trying without it");
}

/* Captures the rows once; null: says why not in *why. */
static void *capture(struct pen_vm *vm, const char **why) {
  struct pen_stream_state *queue = vm->queue;
  queue->device->capture_begin(queue->stream);
  enqueue_rows(vm, true);
  void *graph = queue->device->capture_end(queue->stream, why);
  const char *wrong =
      vm->queued.link == NULL ? NULL : vm->queued.link->kind->forget(vm->queued.link);
  if (wrong != NULL && graph != NULL) {
    queue->device->graph_destroy(graph); /* what it holds of the link's is to be let go */
    graph = NULL;
  }
  *why = wrong == NULL ? *why : wrong;
  return graph;
}

/* The way to begin with. */
static int asked_way(void) {
  static const char *const names[] = {[PEN_GRAPH_WITH_PROGRESS] = "marked",
                                      [PEN_GRAPH_WITHOUT_PROGRESS] = "unmarked",
                                      [PEN_GRAPH_NONE] = "plain"};
  const char *asked = getenv("PEN_GRAPH");
  int way = PEN_GRAPH_WITH_PROGRESS;
  while (asked != NULL && way <= PEN_GRAPH_NONE && strcmp(asked, names[way]) != 0) {
    way++;
  }
  if (way > PEN_GRAPH_NONE) {
    pen_fail(PEN_EXIT_USAGE, "PEN_GRAPH = %s: \"marked\", \"unmarked\" or \"plain\"", asked);
  }
  return way;
}

/* Captures the rows: with the progress words if that can be, else without; else says why, and rows
 * are enqueued step by step. */
static void make_graph(struct pen_vm *vm) {
  struct pen_stream_profile *queued = &vm->queued;
  struct pen_link *link = queued->link;
  queued->way = asked_way();
  atomic_store_explicit(&vm->transport->self->bootstrap_stage,
                        pen_bootstrap_stage_set(PEN_CONNECT_GRAPH, 0, PEN_NONE),
                        memory_order_relaxed);
  const char *why = queued->way == PEN_GRAPH_NONE ? "PEN_GRAPH asks for it"
                    : link == NULL                ? NULL
                                                  : link->kind->uncaptured(link);
  if (why != NULL) {
    queued->way = PEN_GRAPH_NONE;
    say_uncaptured(vm, why);
  }
  while (queued->graph == NULL && queued->way != PEN_GRAPH_NONE) {
    queued->graph = capture(vm, &why);
    if (queued->graph == NULL) {
      queued->way++;
      say_uncaptured(vm, why);
    }
  }
  if (link != NULL && !link->kind->all_captured(link, queued->graph != NULL) &&
      queued->graph != NULL) {
    queued->way = PEN_GRAPH_NONE;
    say_uncaptured(vm, "another rank's cannot");
  }
}

void pen_stream_link(struct pen_vm *vm, const struct pen_link *first, bool announces) {
  if (pen_process_count(vm->plan) > 1) {
    vm->queued.link =
        pen_link_open(vm->queue, vm->profile, vm->transport->shared, vm->transport->global);
    vm->queued.link->first = first;
    vm->queued.link->announces = announces;
    if (first == NULL) {
      vm->queued.link->kind->offer(vm->queued.link);
    }
  }
}

void pen_stream_ready(struct pen_vm *vm) {
  if (vm->queued.link != NULL) {
    vm->queued.link->kind->connect(vm->queued.link);
  }
  if (vm->trace == NULL) {
    make_graph(vm);
  }
}

void pen_stream_warm(struct pen_vm *vm) {
  struct pen_stream_state *queue = vm->queue;
  bool *ran = calloc(vm->program->program_count + 1u, sizeof *ran);
  pen_check(ran != NULL, "no memory for %u programs", vm->program->program_count);
  for (const struct pen_action *row = vm->program->actions, *past = row + vm->program->action_count;
       row < past; row++) {
    if (row->kind <= PEN_W && !ran[row->program]) {
      const struct pen_program *program = &vm->program->programs[row->program];
      ran[row->program] = true;
      vm->data.row_microbatch = row->microbatch;
      pen_vm_call(vm, program->first_op, program->op_count, &vm->program->frames[row->frame]);
    }
  }
  free(ran);
  queue->device->zero(queue->arena, queue->memory->arena_bytes, queue->stream);
  queue->device->stream_synchronize(queue->stream);
  must_be_well(queue->device, queue, "trying its programs");
}

/* ---- steps ---- */

/* Whoever has seen a process die knows better than one whose connection broke: gives the watch time
 * to speak. */
static bool others_spoke(const struct pen_vm *vm) {
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  for (int i = 0; i < SPEAK_PAUSES; i++) {
    if (atomic_load(&vm->transport->shared->control->abort_status) != 0) {
      return true;
    }
    nanosleep(&pause, NULL);
  }
  return false;
}

void pen_stream_check(struct pen_vm *vm) {
  struct pen_link *link = vm->queued.link;
  const char *why = vm->queue->device->error();
  const uint32_t self = vm->transport->global;
  uint32_t lost = self;
  if (why == NULL && link != NULL) {
    why = link->kind->error(link, &lost);
  }
  if (why == NULL || (link != NULL && others_spoke(vm))) {
    return;
  }
  char line[PEN_FAILURE_LINE_BYTES];
  const struct pen_shared *shared = vm->transport->shared;
  pen_failure_line(line, sizeof line, vm->plan, shared, lost, why,
                   lost == self ? pen_failure_waiter(vm->plan, shared, lost) : self);
  pen_fail(PEN_EXIT_LOST, "%s", line + strlen("penstock: "));
}

/* The rank's own entries of a step's board, for all to read. */
static void publish_board(struct pen_vm *vm, uint64_t step) {
  const struct pen_plan *plan = vm->plan;
  const double *from = board_here(vm->queue, step);
  double *board =
      vm->transport->kind->board(vm->transport, step) + pen_step_stats_first(plan, vm->replica);
  for (uint32_t i = 0; i < vm->weight_count; i++) {
    board[vm->weights[i]] = from[vm->weights[i]];
  }
  if (pen_last_stage_rank(plan, vm->profile) == vm->rank) {
    memcpy(board + plan->weight_count, from + plan->weight_count, plan->loss_count * sizeof *board);
  }
  vm->transport->kind->publish(vm->transport, step);
}

/* How many rows of the step at hand the device has done, and from how many all has left. */
struct words {
  uint32_t rows, left;
};

static struct words read_words(const struct pen_stream_state *queue) {
  return (struct words){__atomic_load_n(progress_here(queue), __ATOMIC_ACQUIRE),
                        __atomic_load_n(left_here(queue), __ATOMIC_ACQUIRE)};
}

/* Whether no rank was lost; this one is where its device has failed. */
static bool all_is_well(struct pen_vm *vm) {
  if (atomic_load_explicit(&vm->transport->shared->control->abort_status, memory_order_relaxed) !=
      0) {
    return false;
  }
  pen_stream_check(vm);
  return true;
}

static void set_on_device(struct pen_vm *vm, bool on) {
  atomic_store_explicit(&vm->transport->self->on_device, on, memory_order_relaxed);
}

bool pen_stream_await_action(struct pen_vm *vm, void *event) {
  pen_assert(vm->queue->finished ==
             vm->queue->begun); /* the words are of the step whose rows come */
  bool going;
  do {
    const struct words words = read_words(vm->queue);
    pen_stream_publish_progress(vm, words.rows, words.left);
    going = all_is_well(vm);
  } while (going && !vm->queue->device->event_query(event));
  pen_stream_progress(vm);
  return going;
}

/* Waits until the device has done the oldest step that is not, and publishes it. The words are read
 * before the event: they are of that step. */
static bool finish_step(struct pen_vm *vm) {
  struct pen_stream_state *queue = vm->queue;
  const struct timespec pause = {.tv_nsec = poll_ns};
  bool done, going;
  set_on_device(vm, true);
  do {
    const struct words words = read_words(queue);
    done = queue->device->event_query(queue->done[queue->finished % PEN_STEPS_AHEAD]);
    if (!done) {
      pen_stream_publish_progress(vm, words.rows, words.left);
      nanosleep(&pause, NULL);
    }
    going = all_is_well(vm);
  } while (going && !done);
  set_on_device(vm, false);
  if (!going) {
    return false;
  }
  publish_board(vm, queue->finished);
  queue->rows += vm->program->action_count;
  queue->finished++;
  pen_stream_publish_progress(vm, 0, 0);
  pen_stream_progress(vm);
  return true;
}

static bool finish(struct pen_vm *vm) {
  bool going = true;
  while (going && vm->queue->finished < vm->queue->begun) {
    going = finish_step(vm);
  }
  return going;
}

/* Whether a step is one graph; else its rows are enqueued one by one. */
static bool replays(const struct pen_vm *vm) {
  return vm->queued.graph != NULL && vm->queued.way != PEN_GRAPH_NONE;
}

/* What a step is on its device. Any call may stand until the device has done of what it was given
 * before. */
static bool enqueue_calls(struct pen_vm *vm) {
  struct pen_stream_state *queue = vm->queue;
  queue->device->copy_in(queue->arena + queue->memory->staged_input_offset,
                         pen_staging_host(queue, vm->step), queue->memory->staged_input_bytes,
                         queue->stream);
  if (replays(vm)) {
    queue->device->graph_launch(vm->queued.graph, queue->stream);
  } else if (!enqueue_rows(vm, false)) {
    return false;
  }
  const double *board = (const double *)(queue->arena + queue->memory->step_stats_offset) +
                        pen_step_stats_first(vm->plan, vm->replica);
  queue->device->copy_out(board_here(queue, vm->step), board, board_bytes(queue), queue->stream);
  queue->device->event_record(queue->done[vm->step % PEN_STEPS_AHEAD], queue->stream);
  return true;
}

/* A host that enqueues row by row is near its device as it is, and does not leave a step before
 * that is done: what it waits for next, of other hosts, may be behind this step's rows on their
 * devices. */
static bool enqueue_step(struct pen_vm *vm) {
  struct pen_stream_state *queue = vm->queue;
  const uint64_t ahead = replays(vm) ? PEN_STEPS_AHEAD : 1;
  pen_staging_fill(vm);
  set_on_device(vm, true);
  bool going = enqueue_calls(vm);
  set_on_device(vm, false);
  if (!going) {
    return false;
  }
  pen_stream_check(vm);
  queue->begun++;
  while (going && queue->finished + ahead <= queue->begun) {
    going = finish_step(vm);
  }
  return going;
}

const struct pen_executor pen_stream_executor = {
    .step = enqueue_step,
    .finish = finish,
    .handlers = pen_stream_handlers,
    .handlers_traced = pen_stream_handlers_traced,
};
