/* rank_main.c: the process of a rank: its steps, and what comes between them (see rank.h). */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/learning_rate.h"
#include "runtime/base/output.h"
#include "runtime/base/seal.h"
#include "runtime/base/stop_signals.h"
#include "runtime/comm/action_text.h"
#include "runtime/comm/step_stats.h"
#include "runtime/data/windows.h"
#include "runtime/device/stream_state.h"
#include "runtime/exec/op_hook.h"
#include "runtime/rank/evaluate.h"
#include "runtime/rank/rank.h"
#include "runtime/rank/rank_open.h"
#include "runtime/rank/requests.h"
#include "runtime/rank/samples.h"
#include "runtime/rank/saving.h"
#include "runtime/rank/snapshot.h"

/* Of a run that trains, unless it starts again: warns, with --quiet, too, if it saves nothing or
 * only at its end, and says the learning rate of steps after optimizer.steps. Rank 0 calls it. */
static void print_start_lines(const struct pen_run *run) {
  const struct pen_options *options = run->options;
  const struct pen_optimizer *optimizer = &run->plan->optimizer;
  const uint64_t past_step = run->first_step + run->steps;
  if (run->profile->kind != PEN_TRAIN || run->restart.count > 0 || run->measured != NULL ||
      options->mailbox != NULL) {
    return;
  }
  if (options->checkpoint == NULL) {
    pen_warn("nothing is saved: no --checkpoint");
  } else if (!options->given.save_every && run->steps > 1) {
    pen_warn("not saved before the end: no --save-every");
  }
  if (run->checkpoint_path != NULL && past_step > optimizer->steps) {
    pen_warn("steps after optimizer.steps, %" PRIu64 ", have the learning rate %.4g",
             optimizer->steps, pen_learning_rate(optimizer, past_step));
  }
}

/* A process is one rank: signal handlers and messages of errors find it here. */
static struct pen_rank this_rank;

/* ---- signals and errors ---- */

static void request_stop(int signal_number) {
  pen_shared_request_stop(&this_rank.run->shared, (uint32_t)signal_number);
}

static void describe_action(char *text, size_t bytes) {
  const struct pen_action *action = this_rank.vm->action;
  text[0] = '\0';
  if (action != NULL) {
    pen_action_name(text, bytes, action);
  }
}

static bool claim_abort(int status) {
  return pen_shared_abort(&this_rank.run->shared, (uint32_t)status);
}

/* Another rank was lost or has failed, which is reported already. NCCL's abort does not return
 * while a graph holds the communicator: then the end of the process aborts it. */
static _Noreturn void exit_aborted(const struct pen_rank *rank) {
  bool held = false;
  for (uint32_t i = 0; i < rank->vm_count && rank->stream_state != NULL; i++) {
    held = held || rank->vms[i].stream_profile->graph != NULL;
  }
  if (rank->stream_state != NULL && !held) { /* all vms have the first one's connections */
    rank->vms[0].transport->ops->abort(rank->vms[0].transport);
  }
  _exit((int)atomic_load(&rank->run->shared.control->abort_status));
}

static void exit_if_aborted(const struct pen_rank *rank, bool going) {
  if (!going) {
    exit_aborted(rank);
  }
}

/* A reader that takes its time is no stall; a signal ends the run meanwhile (watchdog.c). */
static void note_wait_for_reader(bool begins) {
  static uint32_t before;
  _Atomic uint32_t *phase = &this_rank.endpoint.self->phase;
  before = begins ? atomic_load(phase) : before;
  atomic_store(phase, begins ? PEN_PHASE_OUTPUT : before);
}

static void handle_signals(void) {
  struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESTART};
  sigset_t none;
  sigemptyset(&none);
  for (size_t i = 0; i < pen_stop_signal_count; i++) {
    const int number = pen_stop_signals[i];
    pen_check(pen_stop_signal_is_ignored(number) || sigaction(number, &action, NULL) == 0,
              "cannot handle signals");
  }
  pen_check(sigprocmask(SIG_SETMASK, &none, NULL) == 0, "cannot unblock signals");
}

/* ---- steps ---- */

/* Rank 0 decides, before it sends anything of a step, whether that step is the last; whatever
 * another rank receives in the step was sent after. The first ranks of other replicas wait for it
 * to begin. So all read the same decision at the step's end; or, where the host runs ahead of its
 * device, or the decision comes on another way than what is received, once rank 0 has decided. */
static bool decide_last_step(struct pen_rank *rank, uint64_t step) {
  struct pen_control *control = rank->run->shared.control;
  const bool stops = step + 1 == rank->run->steps || atomic_load(&control->stop_requested) != 0;
  if (rank->endpoint.global == 0 && stops) {
    atomic_store(&control->last_step, step);
  }
  if (rank->endpoint.global == 0) {
    pen_futex_counter_increment(&control->decided);
    pen_shared_notify(&rank->run->shared);
  }
  return rank->endpoint.rank != 0 || pen_endpoint_begin_step(&rank->endpoint, rank->run_step);
}

static bool is_last_step(struct pen_rank *rank, uint64_t step) {
  struct pen_control *control = rank->run->shared.control;
  const bool ordered = rank->stream_state == NULL && rank->run->plan->host_count < 2;
  exit_if_aborted(rank,
                  ordered || pen_futex_counter_wait(&control->decided, (uint32_t)(step + 1),
                                                    &control->abort_status, control->spin_ns));
  return step == atomic_load(&control->last_step) || step + 1 == rank->run->steps;
}

/* Whether the step that has just ended has diverged, which all ranks read from its statistics. They
 * are kept until then: no rank is PEN_STEP_STATS_DEPTH steps ahead of another. */
static bool has_diverged(struct pen_rank *rank) {
  const struct pen_vm *vm = rank->vm;
  exit_if_aborted(rank, pen_endpoint_gather(&rank->endpoint, vm->run_step));
  return pen_step_stats_diverged(rank->run->plan,
                                 pen_endpoint_step_stats(&rank->endpoint, vm->run_step),
                                 vm->data.step_losses);
}

/* A checkpoint that cannot be written ends no training, but its status is the run's when nothing
 * comes after it. */
static void save_checkpoint(struct pen_rank *rank, bool last) {
  const struct pen_run *run = rank->run;
  struct pen_arena_view view;
  struct pen_saving saving = pen_rank_saving(rank, run->options->checkpoint, &view);
  int status;
  saving.locked = &run->checkpoints;
  saving.overwrites = run->options->overwrite && run->restart.saved_step == 0;
  saving.keep = run->options->keep;
  saving.last = last;
  if (!last && has_diverged(rank)) {
    return;
  }
  if (!last && pen_snapshot_planned(run->plan)) {
    exit_if_aborted(rank, pen_snapshot_save(&rank->endpoint, &saving));
    return;
  }
  exit_if_aborted(
      rank, pen_snapshot_wait(&rank->endpoint) && pen_save(&rank->endpoint, &saving, &status));
  if (last && status != 0) {
    claim_abort(status);
    exit_aborted(rank);
  }
}

/* The command of the next host may be stopped: it counts as a wait for the first rank there. */
static void wait_for_next_host(const struct pen_rank *rank) {
  const struct pen_plan *plan = rank->run->plan;
  const uint32_t global = rank->endpoint.global;
  struct pen_rank_state *state = &rank->run->shared.ranks[global];
  if (plan->host_count > 1) {
    const uint32_t next = (pen_rank_host(plan, global) + 1) % plan->host_count;
    atomic_store(&state->waits_for, pen_rank_set_of(plan, next, PEN_NONE).first + 1);
  }
  pen_memory_checkpoint_wait(&rank->run->memory, global);
  atomic_store(&state->waits_for, 0);
}

/* --recover-every: copies this rank's state into memory that outlives it. */
static bool copy_state(struct pen_rank *rank) {
  const struct pen_arena_view view = {.look = pen_stream_read, .context = rank->stream_state};
  if (rank->stream_state != NULL && !rank->vm->executor->finish(rank->vm)) {
    return false;
  }
  const struct pen_state_position position = {rank->cursor, pen_rank_updates(rank).most};
  wait_for_next_host(rank);
  pen_memory_checkpoint_save(&rank->run->memory, rank->endpoint.global, rank->endpoint.arena,
                             rank->stream_state == NULL ? NULL : &view, rank->vm->optimizer_step,
                             &position);
  return true;
}

/* Whether the command chooses what a step reads: its steps are not logged, and nothing but that
 * keeps the ranks near to each other. */
static bool command_chooses(const struct pen_run *run) {
  return run->hooks != NULL && run->hooks->choose != NULL;
}

/* Chooses the profile of the step that begins at the cursor. Before a step of another profile all
 * ranks end the one before: they share its memory. */
static bool choose_profile(struct pen_rank *rank, uint64_t step) {
  const struct pen_run *run = rank->run;
  struct pen_vm *before = rank->vm;
  uint32_t bucket;
  bool going = true;
  if (command_chooses(run)) {
    going = run->hooks->choose(run, before, step, &bucket);
  } else {
    bucket = pen_bucket_of_step(&run->buckets, run->plan, &run->data, rank->cursor);
  }
  if (going && &rank->vms[bucket] != before && step > 0) {
    going = before->executor->finish(before) && pen_endpoint_barrier(&rank->endpoint);
  }
  rank->vm = going ? &rank->vms[bucket] : before;
  return going;
}

/* Runs one step. */
static bool run_step(struct pen_rank *rank, uint64_t step) {
  const struct pen_run *run = rank->run;
  if (!choose_profile(rank, step)) {
    return false;
  }
  struct pen_vm *vm = rank->vm;
  const uint64_t windows = pen_data_step_windows(run->plan, vm->profile);
  vm->run_step = rank->run_step;
  vm->optimizer_step = run->first_step + step + 1;
  pen_data_prepare_step(&vm->data, rank->cursor, windows);
  rank->cursor += windows;
  if (!decide_last_step(rank, step) ||
      !(command_chooses(run) || pen_endpoint_wait_log(&rank->endpoint, rank->run_step)) ||
      !vm->executor->step(vm)) {
    return false;
  }
  rank->run_step++;
  return run->hooks == NULL || run->hooks->stepped == NULL ||
         (vm->executor->finish(vm) && run->hooks->stepped(run, vm));
}

/* After the last step, before it is saved: rank 0 judges what the run has made of its weights since
 * they were last saved, if that has succeeded, or since it began. False: the run was aborted. */
static bool must_be_finite(struct pen_rank *rank, uint64_t step) {
  const struct pen_run *run = rank->run;
  const bool whole = step + 1 == run->steps;
  if (rank->log.trains && whole && !pen_snapshot_wait(&rank->endpoint)) {
    return false;
  }
  if (rank->endpoint.global == 0) {
    const uint64_t saved = atomic_load(&run->shared.control->saved_step),
                   given = run->restart.from_memory ? run->restart.saved_step : run->first_step;
    pen_log_must_be_finite(&rank->log, whole, saved > given ? saved : given);
  }
  return true;
}

/* On rank 0, after a step; `all`: when all ranks have ended it. */
static bool log_step(struct pen_rank *rank, uint64_t step, bool all) {
  struct pen_vm *vm = rank->vm;
  if (command_chooses(rank->run)) {
    return !all || pen_endpoint_gather(&rank->endpoint, vm->run_step);
  }
  if (rank->log.reported <= step) {
    pen_microbatch_losses_count(&rank->log.microbatches, step, &vm->data,
                                vm->profile->microbatch_count);
  }
  return pen_log_step(&rank->log, &rank->endpoint, step, &vm->data, all);
}

/* Logs, evaluates, samples and saves after a step. */
static bool end_step(struct pen_rank *rank, uint64_t step, bool last) {
  const struct pen_options *options = rank->run->options;
  struct pen_vm *vm = rank->vm;
  const bool saves =
      options->checkpoint != NULL && rank->log.trains &&
      (last || (options->given.save_every && vm->optimizer_step % options->save_every == 0));
  const bool evaluates = pen_evaluates(rank->run, vm->optimizer_step, last);
  const bool samples = pen_samples(rank->run, vm->optimizer_step, last);
  const bool answers = options->mailbox != NULL;
  const bool finishes = saves || evaluates || samples || last || answers;
  if (finishes && !vm->executor->finish(vm)) {
    return false;
  }
  if (rank->endpoint.global == 0 && !log_step(rank, step, finishes)) {
    return false;
  }
  if (last && !must_be_finite(rank, step)) {
    return false;
  }
  if ((evaluates && !pen_evaluate(rank, vm->optimizer_step)) ||
      (samples && !pen_make_samples(rank, vm->optimizer_step))) {
    return false;
  }
  /* After them: a restart from this step makes neither again. */
  if (rank->run->memory.memory != NULL && !last &&
      vm->optimizer_step % options->recover_every == 0 && !copy_state(rank)) {
    return false;
  }
  if (saves) {
    save_checkpoint(rank, last);
  }
  return !answers || pen_requests_answer_step(rank);
}

/* ---- the log ---- */

/* Whether the first epoch after which data are read again is announced: in training, unless the
 * file is shorter than a step, which was said. */
static bool announces_epoch(const struct pen_run *run) {
  return run->profile->kind == PEN_TRAIN && !run->options->quiet && !run->options->watch &&
         run->data.window_count >= pen_data_step_windows(run->plan, run->profile);
}

/* The forecast is of the plan's first profile. */
static double peak_ms_of(const struct pen_run *run) {
  const struct pen_forecast *forecast = &run->plan->forecast;
  const bool known = forecast->peak_tflops > 0 && run->buckets.count == 1 &&
                     run->profile == run->plan->profiles && run->profile->kind == PEN_TRAIN;
  return known ? forecast->flops / (forecast->peak_tflops * 1e9 * run->plan->rank_count) : 0.0;
}

static void open_log(struct pen_rank *rank) {
  const struct pen_run *run = rank->run;
  rank->log = (struct pen_log){
      .plan = run->plan,
      .trains = run->profile->kind == PEN_TRAIN,
      .descriptor = run->log_descriptor,
      .path = run->options->log,
      .peak_ms = peak_ms_of(run),
      .terminal = isatty(STDERR_FILENO),
      .quiet = run->options->quiet || run->options->watch,
      .watched = run->profile->kind == PEN_TRAIN ? &run->shared.control->progress : NULL,
      .first_step = run->first_step,
      .sound_step = run->first_step,
      .steps = run->steps,
      .data = announces_epoch(run) ? &run->data : NULL,
      .max_skipped = run->options->max_skipped,
      .logged_step = run->logged.step,
      .logged_evaluation = run->logged.evaluation_step,
      .skipped = run->logged.skipped,
  };
  if (rank->endpoint.global == 0 && rank->log.descriptor >= 0) {
    pen_log_open(&rank->log, run->options->log_microbatches);
  }
  pen_log_start(&rank->log);
}

/* How many steps were run, and eval's result, for the parent to print when all is well. */
static void report_result(struct pen_rank *rank) {
  struct pen_control *control = rank->run->shared.control;
  if (rank->run->hooks == NULL || !rank->run->hooks->gives_result) {
    control->loss_sum = rank->log.loss_sum;
    control->target_count = rank->log.target_count;
    control->token_count = rank->log.token_count;
    control->not_finite_count = rank->log.not_finite;
  }
  control->step_count = rank->log.reported;
  pen_log_finish(&rank->log);
}

/* No rank releases its memory while another may write there. Between two requests of the library
 * none may (requests.h), and the callers of other hosts close when they like. */
static bool wait_for_all(struct pen_rank *rank) {
  return rank->stream_state == NULL || pen_process_count(rank->run->plan) == 1 ||
         rank->run->options->mailbox != NULL || pen_endpoint_barrier(&rank->endpoint);
}

void pen_rank_main(const struct pen_run *run, uint32_t global) {
  struct pen_rank *rank = &this_rank;
  *rank = (struct pen_rank){.run = run, .vm = rank->vms, .cursor = run->cursor};
  pen_check_speaker(&(struct pen_speaker){
      .rank = (int)global, .describe = describe_action, .claim = claim_abort});
  handle_signals();
  pen_rank_open(rank, global);
  exit_if_aborted(rank, pen_rank_connect(rank));
  open_log(rank);
  pen_output_on_wait(note_wait_for_reader);
  struct pen_rank_state *self = rank->endpoint.self;
  if (run->saves_only) {
    rank->vm->optimizer_step = run->first_step;
    save_checkpoint(rank, true);
    atomic_store(&self->phase, PEN_PHASE_END);
    _exit(0);
  }
  atomic_store_explicit(&self->phase, PEN_PHASE_STEPS, memory_order_relaxed);
  pen_threads_call(pen_seal);
  if (rank->endpoint.global == 0 && run->restart.count > 0) {
    pen_restart_report(&rank->log, &run->restart);
  }
  if (rank->endpoint.global == 0) {
    print_start_lines(run);
  }
  bool going = true, last = false;
  for (uint64_t step = 0; !last; step++) {
    exit_if_aborted(rank, run->options->mailbox == NULL || pen_requests_serve(rank, &going));
    if (!going) {
      break; /* the library's caller wants no more */
    }
    exit_if_aborted(rank, run_step(rank, step));
    last = is_last_step(rank, step);
    exit_if_aborted(rank, end_step(rank, step, last));
  }
  pen_threads_call(pen_unseal);
  if (run->hooks != NULL && run->hooks->left != NULL) {
    run->hooks->left(run, rank->vm);
  }
  exit_if_aborted(rank, wait_for_all(rank));
  if (rank->endpoint.global == 0) {
    report_result(rank);
  }
  if (run->trace_descriptor >= 0) {
    pen_trace_write(rank->vm->trace, rank->vm->program, rank->endpoint.global, run->zero_ns);
  }
  pen_log_must_be_whole(&rank->log);
  atomic_store(&self->phase, PEN_PHASE_END);
  _exit(0);
}
