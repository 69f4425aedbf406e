/* rank.c: the life of a rank. To follow a microbatch from the token file to the weights, read on
 * from `step` below into vm.c's loop, handlers.c's functions, and data.c's ops. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/action_text.h"
#include "runtime/comm/arena.h"
#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_load.h"
#include "runtime/storage/checkpoint_save.h"
#include "runtime/storage/bf16_weights.h"
#include "runtime/exec/find_device.h"
#include "runtime/rank/evaluate.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/device/link.h"
#include "runtime/observe/step_log.h"
#include "runtime/device/stream_executor.h"
#include "runtime/rank/run.h"
#include "runtime/rank/save.h"
#include "runtime/base/seal.h"
#include "runtime/rank/snapshot.h"
#include "runtime/rank/startup_check.h"
#include "runtime/exec/op_hook.h"
#include "runtime/observe/trace.h"
#include "runtime/comm/transport.h"
#include "runtime/exec/vm.h"

/* A rank is a process, and one alone: what signal handlers and messages need of it stands here. */
static const struct pen_run *this_run;
static struct pen_vm
    vms[2 * PEN_BUCKETS_MAX]; /* one a shape; then those of evaluation while training */
static uint32_t vm_count;
static struct pen_vm *vm = vms; /* of the step at hand */
static uint64_t cursor;         /* the first window of the next step */
static uint64_t board_step;     /* steps of the run, evaluation's too: which board comes next */
static struct pen_log log_of_run;

static void ask_to_stop(int signal_number) {
  (void)signal_number;
  atomic_store(&this_run->shared.control->stop_requested, 1);
}

static void describe(char *text, size_t bytes) {
  text[0] = '\0';
  if (vm->row != NULL) {
    pen_action_text(text, bytes, vm->row);
  }
}

static bool claim(int status) { return pen_shared_abort(&this_run->shared, (uint32_t)status); }

/* Another rank was lost or has failed: whoever found out has said so. NCCL's abort does not return
 * while a graph holds the communicator: then the process's end is left to end it. */
static _Noreturn void leave(void) {
  bool held = false;
  for (uint32_t i = 0; i < vm_count; i++) {
    held = held || vms[i].queued.graph != NULL;
  }
  if (vms->queued.link != NULL && !held) { /* whose connections all have */
    vms->queued.link->kind->abort(vms->queued.link);
  }
  _exit((int)atomic_load(&this_run->shared.control->abort_status));
}

static void must(bool going) {
  if (!going) {
    leave();
  }
}

static void take_signals(void) {
  struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
  sigset_t none;
  sigemptyset(&none);
  pen_check(sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0,
            "cannot take signals");
  pen_check(sigprocmask(SIG_SETMASK, &none, NULL) == 0, "cannot take signals");
}

static void read_weights(const struct pen_run *run, uint32_t replica, uint32_t rank,
                         unsigned char *arena) {
  if (run->checkpoint_path != NULL && run->profile->kind == PEN_TRAIN) {
    pen_checkpoint_load(run->plan, replica, rank, arena, run->checkpoint_path);
  } else if (run->checkpoint_path != NULL) {
    pen_checkpoint_load_weights(run->plan, replica, rank, arena, run->checkpoint_path);
  } else if (run->weights_path != NULL) {
    pen_weights_load(run->plan, replica, rank, arena, run->weights_path);
  } else {
    pen_weights_initial(run->plan, replica, rank, arena, run->options->seed);
  }
}

/* Weights go to a device by way of the host's memory. */
static void load_weights(const struct pen_run *run, uint32_t replica, uint32_t rank) {
  if (vm->queue == NULL) {
    read_weights(run, replica, rank, vm->arena);
    return;
  }
  unsigned char *shadow = pen_arena_staging(run->plan, rank);
  read_weights(run, replica, rank, shadow);
  pen_stream_load(vm->queue, shadow);
  pen_arena_staging_free(run->plan, rank, shadow);
}

/* The queue of a device that has memory of its own, or null on the CPU. Adds to `kernels`, which
 * says what the CPU chose. */
static struct pen_stream_state *open_queue(const struct pen_plan *plan, uint32_t rank,
                                           uint32_t global, const char **kernels) {
  const struct pen_device *device = pen_device_find(plan->device);
  if (device == NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "the plan is for the device %s, which this binary was linked without",
             plan->device);
  }
  *kernels = pen_kernels_open();
  pen_check(*kernels != NULL, "no memory for the buffers of matrix products");
  const uint32_t place = plan->host_count > 0 ? global % plan->ranks_per_host : global;
  return device->asynchronous ? pen_stream_open(plan, rank, place, device, kernels) : NULL;
}

/* A rank's ends and calls for every profile that the run may need. */
static void open_profiles(const struct pen_run *run, uint32_t rank, uint32_t global,
                          unsigned char *arena, struct pen_stream_state *queue,
                          struct pen_trace *trace) {
  const uint32_t shape_count = run->buckets.count;
  vm_count = shape_count + run->evaluation.buckets.count;
  for (uint32_t i = 0; i < vm_count; i++) {
    const bool evaluates = i >= shape_count;
    const struct pen_profile *profile =
        evaluates ? run->evaluation.buckets.profile[i - shape_count] : run->buckets.profile[i];
    struct pen_transport *end = pen_shm_open(run->plan, profile, &run->shared, global, arena);
    pen_vm_open(&vms[i], run->plan, profile, rank, arena, end, queue,
                evaluates ? &run->evaluation.data : &run->data, evaluates ? NULL : trace);
  }
  for (uint32_t s = 0; s < shape_count && run->hooks != NULL; s++) {
    run->hooks->opened(run, &vms[s]);
  }
}

/* All that is allocated, opened and computed before the first step. */
static struct pen_transport *open_rank(const struct pen_run *run, uint32_t replica, uint32_t rank) {
  const struct pen_plan *plan = run->plan;
  uint32_t global = replica * plan->rank_count + rank;
  const char *kernels;
  struct pen_stream_state *queue = open_queue(plan, rank, global, &kernels);
  unsigned char *arena =
      queue == NULL ? pen_arena_open(plan, replica, rank, &run->shared) : queue->arena;
  struct pen_trace *trace = NULL;
  if (run->measure.rings != NULL && replica == 0) {
    trace = &run->measure.rings[rank];
    pen_trace_touch(trace, run->trace_descriptor);
  } else if (run->trace_descriptor >= 0) {
    trace = pen_trace_open(run->trace_descriptor, &run->profile->ranks[rank], run->steps);
  }
  open_profiles(run, rank, global, arena, queue, trace);
  for (uint32_t i = 0; i < vm_count && queue != NULL; i++) {
    pen_stream_warm(&vms[i]);
    pen_stream_link(&vms[i], i == 0 ? NULL : vms->queued.link, run->announces);
  }
  load_weights(run, replica, rank);
  for (uint32_t i = 0; i < vm_count; i++) {
    pen_vm_start(&vms[i]);
  }
  if (global == 0 && run->announces) {
    char replicas[32] = "";
    if (plan->replica_count > 1) {
      snprintf(replicas, sizeof replicas, "%u replicas of ", plan->replica_count);
    }
    fprintf(stderr, "%s: %s%u ranks, %s, %u microbatches of %u sequences; %s: %s\n", plan->name,
            replicas, plan->rank_count, plan->schedule, run->profile->microbatch_count,
            plan->microbatch, plan->device, kernels);
  }
  return vm->transport;
}

/* Every rank has its memory, and the same plan. */
static void meet(const struct pen_run *run, struct pen_transport *end) {
  bool aborted;
  pen_startup_publish(run, end->self);
  uint32_t other = pen_transport_agree(end, &aborted);
  must(!aborted);
  if (other != PEN_NONE) {
    pen_fail(PEN_EXIT_DIGEST, "rank %u runs another plan than rank %u: their digests differ", other,
             end->global);
  }
  pen_startup_check(run, end);
  for (uint32_t i = 0; i < vm_count && vm->queue == NULL; i++) {
    pen_arena_reach_peers(run->plan, vms[i].profile, end->replica, end->rank, end->shared);
  }
  if (run->profile->kind == PEN_TRAIN && run->options->checkpoint != NULL &&
      pen_snapshot_planned(run->plan)) {
    pen_snapshot_open(end, vm->queue);
  }
  must(end->kind->barrier(end));
  for (uint32_t i = 0; i < vm_count && vm->queue != NULL; i++) {
    atomic_store_explicit(&end->self->phase, PEN_PHASE_CONNECT, memory_order_relaxed);
    pen_stream_ready(&vms[i]);
    atomic_store_explicit(&end->self->phase, PEN_PHASE_START, memory_order_relaxed);
    must(end->kind->barrier(end));
  }
}

/* Nobody takes its memory away while another may write there. */
static void part(struct pen_transport *end) {
  if (vms->queued.link != NULL) {
    must(end->kind->barrier(end));
  }
}

/* Rank 0 decides, before it sends anything of a step, whether that step is the last; whatever
 * another rank receives in the step was sent after. The first ranks of other replicas wait for it
 * to begin. So all read the same answer at the step's end; or, where the host runs ahead of its
 * device, once rank 0 has decided. */
static void decide_last_step(const struct pen_run *run, struct pen_transport *end, uint64_t step) {
  struct pen_control *control = run->shared.control;
  if (end->global == 0 && (step + 1 == run->steps || atomic_load(&control->stop_requested) != 0)) {
    atomic_store(&control->last_step, step);
  }
  if (end->global == 0) {
    pen_futex_counter_increment(&control->decided);
  }
  must(end->rank != 0 || end->kind->begun(end, board_step));
}

static bool is_last_step(const struct pen_run *run, uint64_t step) {
  struct pen_control *control = run->shared.control;
  must(vm->queue == NULL || pen_futex_counter_wait(&control->decided, (uint32_t)(step + 1),
                                                   &control->abort_status, control->spin_ns));
  return step == atomic_load(&control->last_step) || step + 1 == run->steps;
}

/* A checkpoint that cannot be written ends no training, but its status is the run's when nothing
 * comes after it. */
static void save(const struct pen_run *run, struct pen_transport *end, bool last) {
  const struct pen_arena_view there = {.look = pen_stream_look, .context = vm->queue};
  struct pen_saving saving = {.directory = run->options->checkpoint,
                              .steps = vm->optimizer_step,
                              .cursor = cursor,
                              .keep = run->options->keep,
                              .last = last,
                              .view = vm->queue == NULL ? NULL : &there};
  int status;
  if (!last && pen_snapshot_planned(run->plan)) {
    must(pen_snapshot_save(end, &saving));
    return;
  }
  must(pen_snapshot_wait(end) && pen_save(end, &saving, &status));
  if (last && status != 0) {
    claim(status);
    leave();
  }
}

/* Takes the shape of the step that begins at the cursor. The bytes of another may still be in use
 * where some rank is not done. A command that chooses itself goes by what the step before has
 * given, on all ranks. */
static void choose_shape(const struct pen_run *run, struct pen_transport *end,
                         uint64_t step_index) {
  if (run->hooks != NULL && run->hooks->choose != NULL) {
    must(step_index == 0 || (vm->walk->finish(vm) && end->kind->barrier(end)));
    vm = &vms[run->hooks->choose(run, step_index)];
    return;
  }
  struct pen_vm *chosen = &vms[pen_bucket_of_step(&run->buckets, run->plan, &run->data, cursor)];
  if (chosen != vm && step_index > 0) {
    must(vm->walk->finish(vm) && end->kind->barrier(end));
  }
  vm = chosen;
}

/* One step and what stands between it and the next. Returns whether it was the last. */
static bool step(const struct pen_run *run, struct pen_transport *end, uint64_t step_index) {
  const struct pen_options *options = run->options;
  choose_shape(run, end, step_index);
  uint64_t step_windows = pen_data_step_windows(run->plan, vm->profile);
  vm->step = board_step;
  vm->optimizer_step = run->first_step + step_index + 1;
  pen_data_prepare_step(&vm->data, cursor, step_windows);
  cursor += step_windows;
  decide_last_step(run, end, step_index);
  must(end->kind->board_free(end, board_step));
  must(vm->walk->step(vm));
  board_step++;
  must(run->hooks == NULL || run->hooks->stepped == NULL ||
       (vm->walk->finish(vm) && run->hooks->stepped(run, vm)));

  bool last = is_last_step(run, step_index);
  bool trains = run->profile->kind == PEN_TRAIN && options->checkpoint != NULL;
  bool saves =
      trains &&
      (last || (options->given.save_every && vm->optimizer_step % options->save_every == 0));
  bool evaluates = pen_evaluates(run, vm->optimizer_step, last);
  if (saves || evaluates || last) {
    must(vm->walk->finish(vm));
  }
  if (end->global == 0) {
    must(pen_log_step(&log_of_run, end, step_index, vm->data.step_targets,
                      saves || evaluates || last));
  }
  if (saves) {
    save(run, end, last);
  }
  if (evaluates) {
    must(pen_evaluate(run, end, &log_of_run, vm->optimizer_step, vms + run->buckets.count,
                      &board_step, &vm));
  }
  return last;
}

static void open_log(const struct pen_run *run) {
  log_of_run = (struct pen_log){
      .plan = run->plan,
      .trains = run->profile->kind == PEN_TRAIN,
      .descriptor = run->log_descriptor,
      .path = run->options->log,
      .terminal = isatty(STDERR_FILENO),
      .quiet = run->options->quiet || run->options->watch,
      .watched = run->options->watch ? &run->shared.control->progress : NULL,
      .first_step = run->first_step,
      .steps = run->steps,
  };
  pen_log_start(&log_of_run);
}

/* How many steps were made, and eval's result, for the parent to print when all is well. */
static void report(const struct pen_run *run) {
  struct pen_control *control = run->shared.control;
  if (run->hooks == NULL) {
    control->loss_sum = log_of_run.loss_sum;
    control->target_count = log_of_run.target_count;
  }
  control->step_count = log_of_run.told;
  pen_log_finish(&log_of_run);
}

void pen_rank_main(const struct pen_run *run, uint32_t replica, uint32_t rank) {
  this_run = run;
  pen_check_speaker(&(struct pen_speaker){
      .rank = (int)(replica * run->plan->rank_count + rank), .describe = describe, .claim = claim});
  take_signals();
  cursor = run->cursor;
  struct pen_transport *end = open_rank(run, replica, rank);
  meet(run, end);
  open_log(run);
  atomic_store_explicit(&end->self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  pen_seal();
  uint64_t step_index = 0;
  while (!step(run, end, step_index)) {
    step_index++;
  }
  pen_unseal();
  if (run->hooks != NULL) {
    run->hooks->left(run, vm);
  }
  part(end);
  if (end->global == 0) {
    report(run);
  }
  if (run->trace_descriptor >= 0) {
    pen_trace_write(vm->trace, vm->program, end->global, run->zero_ns);
  }
  pen_log_must_be_whole(&log_of_run);
  atomic_store(&end->self->phase, PEN_PHASE_END);
  _exit(0);
}
