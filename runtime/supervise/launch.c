/* launch.c: starts one process a rank, on the CPU each on its own cores if there are enough, and
 * supervises them (see supervise.h). */
#define _GNU_SOURCE
#include "runtime/supervise/supervise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/standard_error.h"
#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/child.h"
#include "runtime/base/files.h"
#include "runtime/control/control_tcp.h"
#include "runtime/control/mirror.h"
#include "runtime/observe/trace.h"
#include "runtime/rank/rank.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/supervise/binding.h"
#include "runtime/supervise/early_exit.h"
#include "runtime/supervise/host_memory.h"
#include "runtime/supervise/internal.h"
#include "runtime/supervise/monitor.h"
#include "runtime/supervise/restart.h"
#include "runtime/supervise/signals.h"

/* A rank with its own core spins, since to sleep and wake up costs more than most waits. One that
 * shares its core yields soon. */
static const uint64_t spin_alone_ns = 100 * 1000, spin_shared_ns = 2 * 1000;

/* For the commands on all hosts to start: what --timeout says, if it is given, and at least as long
 * as programs need. */
static double connect_timeout_s(const struct pen_options *options) {
  const double least_s = 6, default_s = 120;
  return !options->given.timeout      ? default_s
         : options->timeout < least_s ? least_s
                                      : options->timeout;
}

/* In the new process. */
static _Noreturn void become_rank(const struct pen_run *run, uint32_t rank,
                                  const struct pen_binding *binding) {
  pen_child_end_with(run->parent);
  const struct pen_cores cores = pen_binding_cores(binding, rank);
  pen_binding_apply(&cores);
  pen_rank_main(run, rank);
}

/* Of the first start: a rank on the CPU that shares its core is slower by design. */
static void report_shared_cores(const struct pen_run *run, const struct pen_binding *binding) {
  const uint32_t threads = run->plan->threads_per_rank;
  char of_threads[32] = "";
  if (binding->alone || !run->announces || !pen_device_row(run->plan->device)->on_host) {
    return;
  }
  if (threads > 1) {
    snprintf(of_threads, sizeof of_threads, " of %u threads", threads);
  }
  pen_say(run->plan->name, "%u rank%s%s share%s %u core%s", run->local.count,
          run->local.count == 1 ? "" : "s", of_threads, run->local.count == 1 ? "s" : "",
          binding->allowed_count, binding->allowed_count == 1 ? "" : "s");
}

static void start_ranks(struct pen_run *run, struct pen_control_tcp *tcp, struct pen_mirror *mirror,
                        pid_t *pids) {
  struct pen_binding binding;
  pen_binding_open(&binding, run->plan, &run->local);
  report_shared_cores(run, &binding);
  run->shared.control->spin_ns = binding.alone ? spin_alone_ns : spin_shared_ns;
  run->parent = getpid();
  const struct pen_rank_set *local = &run->local;
  for (uint32_t r = local->first; r < local->process_count; r = pen_rank_set_next(local, r + 1)) {
    gethostname(run->shared.ranks[r].host, PEN_HOST_BYTES - 1);
    run->shared.ranks[r].shares_core = !binding.alone;
    pids[r] = fork();
    if (pids[r] == 0) {
      run->shared.ranks[r].process = (int32_t)getpid(); /* before what the rank may say */
      pen_control_tcp_leave(tcp);
      pen_mirror_leave(mirror);
      become_rank(run, r, &binding);
    }
    pen_check(pids[r] > 0, "cannot start a process for rank %u",
              r); /* the kernel kills those started */
    run->shared.ranks[r].process = (int32_t)pids[r];
  }
}

static struct pen_mirror *open_mirror(const struct pen_run *run,
                                      const struct pen_control_config *control,
                                      struct pen_control_tcp *tcp,
                                      const struct pen_start_state *state) {
  if (!pen_restart_mirrors(run) || run->local.count == 0) {
    return NULL;
  }
  struct pen_mirror_config config = {.control = *control,
                                     .server = pen_control_tcp_mirror(tcp),
                                     .own = &run->memory,
                                     .mirrored = &run->mirrored,
                                     .shared = &run->shared,
                                     .wanted_step = pen_restart_wanted_step(run, state)};
  config.control.attempt = (uint32_t)run->restart.count; /* now the same on all hosts */
  return pen_mirror_open(&config);
}

/* What a command has while it runs its ranks once. */
struct attempt {
  struct pen_control_tcp *tcp;
  struct pen_mirror *mirror;
  struct pen_monitor *monitor;
};

static void open_shared(struct pen_run *run, struct pen_control_tcp *tcp) {
  pen_shared_open(&run->shared, run->plan);
  run->shared.local = run->local;
  run->shared.results = run->results;
  if (run->library != NULL) {
    run->shared.mailbox = run->library->all;
    run->shared.mailbox_bytes = run->options->mailbox->bytes;
  }
  pen_control_tcp_attach(tcp, &run->shared);
}

/* Connects the commands and starts the ranks, unless a command is lost before. Returns 0, or the
 * status of the run. */
static int start_attempt(struct pen_run *run, const struct pen_control_config *config,
                         struct attempt *attempt, pid_t *pids) {
  struct pen_start_state state;
  /* After a loss the wait is short, and the states in memory are to be saved. */
  pen_stop_signals_end_command(config->attempt == 0 && pen_host_and_spare_count(config->plan) > 1);
  attempt->tcp = pen_control_tcp_open(config, connect_timeout_s(run->options));
  pen_stop_signals_end_command(false);
  pen_restart_take_plan(run);
  open_shared(run, attempt->tcp);
  pen_restart_take_place(run);
  attempt->monitor = pen_monitor_open(run);
  const bool agreed = pen_restart_agree(run, attempt->tcp, &state);
  pen_control_tcp_start(attempt->tcp);
  attempt->mirror = agreed ? open_mirror(run, config, attempt->tcp, &state) : NULL;
  const uint32_t status = atomic_load(&run->shared.control->abort_status);
  if (status != 0) {
    return (int)status;
  }
  if (!pen_mirror_is_complete(attempt->mirror)) {
    pen_control_tcp_lose(attempt->tcp, (run->local.host + 1) % run->plan->host_count);
    return PEN_EXIT_LOST;
  }
  pen_restart_apply(run, &state);
  if (run->steps > 0 && run->local.count > 0) {
    start_ranks(run, attempt->tcp, attempt->mirror, pids);
  }
  pen_mirror_start(attempt->mirror);
  pen_monitor_start(attempt->monitor);
  return 0;
}

/* Starts the ranks once and waits until all have exited. */
static int run_ranks(struct pen_run *run, pid_t *pids) {
  if (run->local.count == 0 && run->membership.only != PEN_NONE) {
    open_shared(run, NULL);
    return 0; /* the command of a rank that does not take part */
  }
  const struct pen_control_config config = {.plan = run->membership.plan,
                                            .secret = &run->secret,
                                            .membership = &run->membership,
                                            .attempt = (uint32_t)run->restart.count,
                                            .mirrors = pen_restart_mirrors(run),
                                            .silence_s = pen_silence_s(run->options->timeout)};
  struct attempt attempt = {.tcp = NULL};
  int status = start_attempt(run, &config, &attempt, pids);
  if (status == 0 && run->steps > 0) {
    status = pen_supervise_ranks(run, pids);
  }
  pen_monitor_close(attempt.monitor);
  pen_mirror_close(attempt.mirror);
  pen_control_tcp_close(attempt.tcp);
  if (atomic_load(&run->shared.control->saving) != 0 &&
      pen_folder_is(run->options->checkpoint, &run->checkpoints)) {
    pen_checkpoint_abandon(run->options->checkpoint);
  }
  return status;
}

/* Of the plan and its fallbacks. */
static uint32_t most_processes(const struct pen_plan *plan) {
  uint32_t most = pen_process_count(plan);
  for (uint32_t f = 0; f < plan->fallback_count; f++) {
    const uint32_t count = pen_process_count(&plan->fallbacks[f]);
    most = count > most ? count : most;
  }
  return most;
}

/* The status of the run stays that of its end. */
static void save_copies(struct pen_run *run, int status, pid_t *pids) {
  if (!pen_restart_prepare_save(run, status)) {
    return;
  }
  pen_shared_close(&run->shared);
  const int saved = run_ranks(run, pids);
  if (run->local.first == 0 && run->steps > 0 && saved == 0) {
    pen_warn("the state after step %" PRIu64 ", which was in memory, is saved", run->first_step);
  } else if (run->local.first == 0 && saved != 0) {
    pen_warn("the state in memory could not be saved");
  }
}

int pen_launch(struct pen_run *run) {
  pen_standard_error_share();
  pen_files_report_size_limit(); /* the shared memory is a file too */
  pid_t *pids =
      pen_allocate(most_processes(run->plan), sizeof *pids, "%u ranks", most_processes(run->plan));
  pen_block_signals();
  pen_host_memory_check(run);
  pen_early_exit_close();
  pen_membership_open(&run->membership, run->plan, &run->local);
  pen_restart_open(run);
  int status = run_ranks(run, pids);
  while (pen_restart_prepare(run, status)) {
    pen_shared_close(&run->shared);
    status = run_ranks(run, pids);
  }
  save_copies(run, status, pids);
  pen_restart_close(run);
  pen_membership_close(&run->membership);
  free(pids);
  if (run->trace_descriptor >= 0) {
    pen_trace_finish(run->trace_descriptor);
  }
  return status;
}
