/* processes.c: which ranks' processes have exited, and how (see internal.h). */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/control/failure_report.h"
#include "runtime/supervise/internal.h"

bool pen_watchdog_is_local(const struct pen_watchdog *watchdog, uint32_t rank) {
  return pen_rank_set_has(&watchdog->run->local, rank);
}

void pen_watchdog_set_lost(struct pen_watchdog *watchdog, uint32_t rank, const char *cause) {
  if (watchdog->lost == PEN_NONE) {
    watchdog->lost = rank;
    pen_failure_detected(&watchdog->run->shared);
    snprintf(watchdog->cause, sizeof watchdog->cause, "%s", cause);
  }
}

/* In all attempts. */
static bool has_made_no_step(const struct pen_watchdog *watchdog) {
  const struct pen_run *run = watchdog->run;
  bool none = run->restart.count == 0 || run->restart.lacks_memory;
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    none = none && atomic_load(&run->shared.ranks[r].published.count) == 0;
  }
  return none;
}

bool pen_watchdog_record(const struct pen_watchdog *watchdog, uint32_t rank, const char *cause,
                         uint32_t waiter, char line[PEN_FAILURE_LINE_BYTES]) {
  pen_failure_line(line, PEN_FAILURE_LINE_BYTES, watchdog->run->plan, &watchdog->run->shared, rank,
                   cause, waiter);
  if (strcmp(cause, "signal 9") == 0 && has_made_no_step(watchdog)) {
    pen_failure_add_memory(line);
  }
  return pen_failure_record(&watchdog->run->shared, rank, 0, line);
}

/* Whether a rank may exit with this status: 0 after its last step or an abort, else the run's
 * status. A library may call exit(0) too. */
static bool is_expected_exit(const struct pen_watchdog *watchdog, uint32_t rank, uint32_t status) {
  const struct pen_shared *shared = &watchdog->run->shared;
  const uint32_t abort_status = atomic_load(&shared->control->abort_status);
  return status == 0 ? abort_status != 0 || atomic_load(&shared->ranks[rank].phase) == PEN_PHASE_END
                     : status == abort_status;
}

/* A rank that was killed while the run ends because of another one is reported, too. */
static void set_signalled(struct pen_watchdog *watchdog, uint32_t rank, const char *cause) {
  const struct pen_shared *shared = &watchdog->run->shared;
  if (watchdog->lost != PEN_NONE || atomic_load(&shared->control->abort_status) == PEN_EXIT_LOST) {
    char line[PEN_FAILURE_LINE_BYTES];
    const uint32_t waiter = pen_failure_waiter(watchdog->run->plan, shared, rank);
    if (pen_watchdog_record(watchdog, rank, cause, waiter, line)) {
      pen_failure_say(line);
    }
  } else {
    pen_watchdog_set_lost(watchdog, rank, cause);
  }
}

/* A process that exited with an error of its own has printed it and recorded its status. */
static void record_exit(struct pen_watchdog *watchdog, uint32_t rank, int status) {
  char cause[64];
  watchdog->ranks[rank].exited = true;
  watchdog->exited_count++;
  atomic_store(&watchdog->run->shared.ranks[rank].waits_for, 0);
  if (WIFSIGNALED(status) && !watchdog->ranks[rank].killed) {
    snprintf(cause, sizeof cause, "signal %d", WTERMSIG(status));
    set_signalled(watchdog, rank, cause);
  } else if (WIFEXITED(status) &&
             !is_expected_exit(watchdog, rank, (uint32_t)WEXITSTATUS(status))) {
    snprintf(cause, sizeof cause, "exit %d", WEXITSTATUS(status));
    pen_watchdog_set_lost(watchdog, rank, cause);
  }
}

void pen_watchdog_reap(struct pen_watchdog *watchdog) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    uint32_t r = 0;
    while (r < watchdog->rank_count && watchdog->ranks[r].pid != pid) {
      r++;
    }
    if (r == watchdog->rank_count) {
      continue; /* a child that this process had before it executed penstock */
    }
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      watchdog->ranks[r].stopped = WIFSTOPPED(status);
      watchdog->ranks[r].stopped_ns = 0;
    } else {
      record_exit(watchdog, r, status);
    }
  }
}
