/* launch.c: starts one process a rank, on the CPU each on its own cores if there are enough, and
 * supervises them (see supervise.h). */
#define _GNU_SOURCE
#include "runtime/supervise/supervise.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/rank/rank.h"
#include "runtime/comm/control_tcp.h"
#include "runtime/observe/trace.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/supervise/internal.h"
#include "runtime/supervise/monitor.h"
#include "runtime/supervise/restart.h"
#include "runtime/supervise/signals.h"

/* A rank with its own core spins, since to sleep and wake up costs more than most waits. One that
 * shares its core yields soon. */
static const uint64_t spin_alone_ns = 100 * 1000, spin_shared_ns = 2 * 1000;

static const double connect_timeout_s = 120; /* for the commands on all hosts to start */

/* The cores that this process may use; null when they cannot be known. */
static cpu_set_t *allowed_cores(size_t *set_bytes, uint32_t *core_count) {
  for (int cores_max = 1024; cores_max <= 1 << 16; cores_max *= 2) {
    cpu_set_t *cores = CPU_ALLOC(cores_max);
    *set_bytes = CPU_ALLOC_SIZE(cores_max);
    if (cores != NULL && sched_getaffinity(0, *set_bytes, cores) == 0) {
      *core_count = (uint32_t)CPU_COUNT_S(*set_bytes, cores);
      return cores;
    }
    CPU_FREE(cores);
  }
  *core_count = 0;
  return NULL;
}

/* Binds this process to `count` cores of the set, after the first `skipped`; changes the set. */
static void bind_to_cores(cpu_set_t *cores, size_t set_bytes, uint32_t skipped, uint32_t count) {
  uint32_t seen = 0;
  for (size_t core = 0; core < set_bytes * 8; core++) {
    if (CPU_ISSET_S(core, set_bytes, cores)) {
      if (seen < skipped || seen >= skipped + count) {
        CPU_CLR_S(core, set_bytes, cores);
      }
      seen++;
    }
  }
  sched_setaffinity(0, set_bytes, cores); /* on failure it runs on any core */
}

/* In the new process. It must not outlive its parent, which may have exited before the prctl(). */
static _Noreturn void become_rank(const struct pen_run *run, uint32_t rank, cpu_set_t *cores,
                                  size_t set_bytes, bool pinned) {
  pen_check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0,
            "cannot request a signal at the exit of the parent");
  if (getppid() != run->parent) {
    _exit(PEN_EXIT_LOST);
  }
  if (pinned) {
    bind_to_cores(cores, set_bytes, (rank - run->local.first) * run->plan->threads_per_rank,
                  run->plan->threads_per_rank);
  }
  pen_rank_main(run, rank / run->plan->rank_count, rank % run->plan->rank_count);
}

static void start_ranks(struct pen_run *run, struct pen_control_tcp *tcp, pid_t *pids) {
  size_t set_bytes = 0;
  uint32_t core_count = 0;
  cpu_set_t *cores = allowed_cores(&set_bytes, &core_count);
  bool alone = (uint64_t)run->local.count * run->plan->threads_per_rank <= core_count;
  bool pinned = alone && strcmp(run->plan->device, "cpu") ==
                             0; /* threads of a driver and NCCL would share the rank's core */
  run->shared.control->spin_ns = alone ? spin_alone_ns : spin_shared_ns;
  run->parent = getpid();
  for (uint32_t r = run->local.first; r < run->local.first + run->local.count; r++) {
    pids[r] = fork();
    if (pids[r] == 0) {
      pen_control_tcp_leave(tcp);
      become_rank(run, r, cores, set_bytes, pinned);
    }
    pen_check(pids[r] > 0, "cannot start a process for rank %u",
              r); /* the kernel kills those started */
    run->shared.ranks[r].process = (int32_t)pids[r];
    gethostname(run->shared.ranks[r].host, PEN_HOST_BYTES - 1);
  }
  CPU_FREE(cores);
}

/* Starts the ranks once and waits until all have exited. */
static int run_ranks(struct pen_run *run, pid_t *pids) {
  pen_shared_open(&run->shared, run->plan);
  run->shared.local = run->local;
  struct pen_monitor *monitor = pen_monitor_open(run);
  const struct pen_control_config config = {.plan = run->plan,
                                            .secret = &run->secret,
                                            .local = run->local,
                                            .attempt = (uint32_t)run->restart.count};
  struct pen_control_tcp *tcp = pen_control_tcp_open(&config, &run->shared, connect_timeout_s);
  struct pen_start_state state = pen_restart_state(run);
  pen_control_tcp_agree(tcp, &state);
  pen_restart_apply(run, &state);
  if (run->steps > 0) {
    start_ranks(run, tcp, pids);
  }
  pen_control_tcp_start(tcp);
  pen_monitor_start(monitor);
  const int status = run->steps > 0 ? pen_supervise_ranks(run, pids) : 0;
  pen_monitor_close(monitor);
  pen_control_tcp_close(tcp);
  if (atomic_load(&run->shared.control->saving) != 0) {
    pen_checkpoint_abandon(run->options->checkpoint);
  }
  return status;
}

int pen_launch(struct pen_run *run) {
  pen_files_report_size_limit(); /* the shared memory is a file too */
  pid_t *pids = calloc(pen_process_count(run->plan), sizeof *pids);
  pen_check(pids != NULL, "no memory for %u ranks", pen_process_count(run->plan));
  pen_block_signals();
  pen_restart_open(run);
  int status = run_ranks(run, pids);
  while (pen_restart_prepare(run, status)) {
    pen_shared_close(&run->shared);
    status = run_ranks(run, pids);
  }
  pen_restart_close(run);
  free(pids);
  if (run->trace_descriptor >= 0) {
    pen_trace_finish(run->trace_descriptor);
  }
  return status;
}
