/* launch.c: starts one process a rank, on the CPU each on a core of its own where there are enough,
 * and hands over to the watch. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/base/files.h"
#include "runtime/rank/run.h"
#include "runtime/observe/trace.h"
#include "runtime/comm/control_tcp.h"

/* A rank that has its core spins: to sleep and be woken costs more than most waits. One that shares
 * it yields soon. */
static const uint64_t spin_alone_ns = 100 * 1000, spin_shared_ns = 2 * 1000;

static const double meeting_s = 120; /* given the commands on other hosts to be started */

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

/* Leaves in the set its `count` members after the first `skipped`, and binds this process to them.
 */
static void pin(cpu_set_t *cores, size_t set_bytes, uint32_t skipped, uint32_t count) {
  uint32_t seen = 0;
  for (size_t core = 0; core < set_bytes * 8; core++) {
    if (CPU_ISSET_S(core, set_bytes, cores)) {
      if (seen < skipped || seen >= skipped + count) {
        CPU_CLR_S(core, set_bytes, cores);
      }
      seen++;
    }
  }
  sched_setaffinity(0, set_bytes, cores); /* a wish: unpinned it runs too */
}

/* The first thing a rank does: it must not outlive its parent, which could die before it says so.
 */
static _Noreturn void become_rank(const struct pen_run *run, uint32_t rank, cpu_set_t *cores,
                                  size_t set_bytes, bool pinned) {
  pen_check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "cannot tie a rank to its parent");
  if (getppid() != run->parent) {
    _exit(PEN_EXIT_LOST);
  }
  if (pinned) {
    pin(cores, set_bytes, (rank - run->local.first) * run->plan->threads_per_rank,
        run->plan->threads_per_rank);
  }
  pen_rank_main(run, rank / run->plan->rank_count, rank % run->plan->rank_count);
}

sigset_t pen_blocked_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

void pen_block_signals(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
  const sigset_t held = pen_blocked_signals();
  pen_check(sigaction(SIGCHLD, &plain, NULL) == 0 && sigaction(SIGPIPE, &ignored, NULL) == 0 &&
                sigprocmask(SIG_BLOCK, &held, NULL) == 0,
            "cannot hold signals back");
}

static void start_ranks(struct pen_run *run, struct pen_control_tcp *wire, pid_t *pids) {
  size_t set_bytes = 0;
  uint32_t core_count = 0;
  cpu_set_t *cores = allowed_cores(&set_bytes, &core_count);
  bool alone = (uint64_t)run->local.count * run->plan->threads_per_rank <= core_count;
  bool pinned =
      alone && strcmp(run->plan->device, "cpu") ==
                   0; /* a driver and NCCL start threads, which would share the rank's core */
  run->shared.control->spin_ns = alone ? spin_alone_ns : spin_shared_ns;
  run->parent = getpid();
  for (uint32_t r = run->local.first; r < run->local.first + run->local.count; r++) {
    pids[r] = fork();
    if (pids[r] == 0) {
      pen_control_tcp_leave(wire);
      become_rank(run, r, cores, set_bytes, pinned);
    }
    pen_check(pids[r] > 0, "cannot start a process for rank %u",
              r); /* those started die with this process */
    run->shared.ranks[r].process = (int32_t)pids[r];
    gethostname(run->shared.ranks[r].host, PEN_HOST_BYTES - 1);
  }
  CPU_FREE(cores);
}

int pen_launch(struct pen_run *run) {
  pen_files_report_size_limit(); /* the shared memory is a file too */
  pen_shared_open(&run->shared, run->plan);
  uint32_t rank_count = pen_process_count(run->plan);
  pid_t *pids = calloc(rank_count, sizeof *pids);
  pen_check(pids != NULL, "no memory for %u ranks", rank_count);
  pen_block_signals();
  struct pen_control_tcp *wire =
      pen_control_tcp_open(run->plan, &run->shared, run->local, meeting_s);
  start_ranks(run, wire, pids);
  pen_control_tcp_start(wire);
  int status = pen_watchdog(run, pids);
  pen_control_tcp_close(wire);
  free(pids);
  if (atomic_load(&run->shared.control->saving) != 0) {
    pen_checkpoint_abandon(run->options->checkpoint);
  }
  if (run->trace_descriptor >= 0) {
    pen_trace_finish(run->trace_descriptor);
  }
  return status;
}
