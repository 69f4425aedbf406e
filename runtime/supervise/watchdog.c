/* watchdog.c: the parent's loop while the ranks run: it handles signals, reports a rank that has
 * failed and the rank that waits for it, and ends all processes (see internal.h). */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/comm/failure_text.h"
#include "runtime/control/failure_report.h"
#include "runtime/storage/checkpoint_prune.h"
#include "runtime/supervise/dashboard.h"
#include "runtime/supervise/internal.h"
#include "runtime/supervise/signals.h"

static const uint64_t poll_ns = 100 * 1000000ull; /* between two polls of the ranks */
static const uint64_t poll_max_ns =
    120 * 1000000ull; /* counted for one poll: no rank stalls while this process is stopped */
static const uint64_t waiter_ns =
    500 * 1000000ull; /* how long to look for a rank that waits for the lost one */
static const uint64_t restart_waiter_ns = 20 * 1000000ull; /* the same if the run continues: all
                                                              stand still meanwhile */
static const uint64_t exit_ns = 1000 * 1000000ull;   /* given to the ranks to exit after an abort */
static const uint64_t unread_ns = 1000 * 1000000ull; /* for a reader after a signal */
static const uint64_t kill_ns = 10000 * 1000000ull;  /* given to killed processes to exit */
static const uint64_t force_ns =
    1000 * 1000000ull; /* a second SIGINT that comes sooner, as timeout(1) sends it, is ignored */

/* A repeated SIGTERM has no further effect: a batch system sends it several times before it kills.
 */
static void handle_signal(struct pen_watchdog *watchdog, int signal_number) {
  if (signal_number > 0 && signal_number != SIGCHLD) {
    pen_shared_request_stop(&watchdog->run->shared, (uint32_t)signal_number);
  }
  if (signal_number == SIGINT && watchdog->interrupted_ns == 0) {
    watchdog->interrupted_ns = pen_now_ns();
  } else if (signal_number == SIGINT && pen_now_ns() - watchdog->interrupted_ns >= force_ns) {
    watchdog->force_quit = true;
  }
}

/* Waits up to `timeout_ns` for a signal and handles it. Returns the time since the last poll. */
static uint64_t poll_ranks(struct pen_watchdog *watchdog, uint64_t timeout_ns) {
  const sigset_t blocked = pen_blocked_signals();
  const struct timespec timeout = {.tv_nsec = (long)timeout_ns};
  handle_signal(watchdog, sigtimedwait(&blocked, NULL, &timeout));
  pen_watchdog_reap(watchdog);
  uint64_t before_ns = watchdog->now_ns;
  watchdog->now_ns = pen_now_ns();
  uint64_t passed_ns = watchdog->now_ns - before_ns;
  return passed_ns < poll_max_ns ? passed_ns : poll_max_ns;
}

static void kill_rank(struct pen_watchdog *watchdog, uint32_t rank) {
  struct pen_watched_rank *watched = &watchdog->ranks[rank];
  if (!watched->exited) {
    watched->killed = true;
    kill(watched->pid, SIGKILL);
  }
}

static bool restarts_are_left(const struct pen_run *run) {
  return run->restart.count < run->options->restarts &&
         atomic_load(&run->shared.control->stop_requested) == 0;
}

/* Reports the lost rank as soon as a rank waits for it, or after a while, and aborts the others. */
static void report_lost(struct pen_watchdog *watchdog) {
  const uint64_t longest_ns = restarts_are_left(watchdog->run) ? restart_waiter_ns : waiter_ns;
  uint32_t waiter = pen_failure_waiter(watchdog->run->plan, &watchdog->run->shared, watchdog->lost);
  for (uint64_t passed_ns = 0; waiter == PEN_NONE && passed_ns < longest_ns &&
                               watchdog->exited_count < watchdog->local_count;) {
    const struct timespec pause = {.tv_nsec = 5 * 1000000};
    nanosleep(&pause, NULL);
    passed_ns += (uint64_t)pause.tv_nsec;
    pen_watchdog_reap(watchdog);
    waiter = pen_failure_waiter(watchdog->run->plan, &watchdog->run->shared, watchdog->lost);
  }
  /* The state is read before the abort, which ends the waits. */
  char line[PEN_FAILURE_LINE_BYTES];
  const bool first = pen_watchdog_record(watchdog, watchdog->lost, watchdog->cause, waiter, line);
  kill_rank(watchdog, watchdog->lost);
  pen_shared_abort(&watchdog->run->shared, PEN_EXIT_LOST);
  if (first) {
    pen_failure_say(line);
  }
}

/* Waits up to `timeout_ns` until all processes have exited. */
static void await_exits(struct pen_watchdog *watchdog, uint64_t timeout_ns) {
  uint64_t end_ns = pen_now_ns() + timeout_ns;
  while (watchdog->exited_count < watchdog->local_count && pen_now_ns() < end_ns) {
    poll_ranks(watchdog, poll_ns / 10);
  }
}

/* Kills the processes that do not exit by themselves. A signal does not end one that waits in the
 * kernel for a device that hangs; then the result is false. */
static bool end_processes(struct pen_watchdog *watchdog) {
  const struct pen_run *run = watchdog->run;
  const bool restarts =
      restarts_are_left(run) && atomic_load(&run->shared.control->abort_status) == PEN_EXIT_LOST;
  await_exits(watchdog, restarts ? 0 : exit_ns);
  for (uint32_t r = 0; r < watchdog->rank_count; r++) {
    if (pen_watchdog_is_local(watchdog, r)) {
      kill_rank(watchdog, r);
    }
  }
  await_exits(watchdog, kill_ns);
  for (uint32_t r = 0; r < watchdog->rank_count; r++) {
    if (pen_watchdog_is_local(watchdog, r) && !watchdog->ranks[r].exited) {
      pen_warn("rank %u (pid %d) cannot be killed: the device or disk that it waits for hangs", r,
               (int)watchdog->ranks[r].pid);
    }
  }
  return watchdog->exited_count == watchdog->local_count;
}

/* Whether the run has a checkpoint, which DIR/latest names: it resumed from one, or saved one, now
 * or before a restart. */
static bool has_saved(const struct pen_run *run, uint64_t *step) {
  const bool saved = run->options->resume || run->restart.saved_step > 0 ||
                     atomic_load(&run->shared.control->saved_step) > 0;
  return saved && pen_checkpoint_latest(run->options->checkpoint, step);
}

/* Call after all ranks have exited: reports the last step that is on disk. After a restart the run
 * may have begun at a step that only the memory copies had. */
static void print_force_quit(const struct pen_run *run) {
  uint64_t step;
  char what[64] = "";
  if (run->profile->kind == PEN_TRAIN && has_saved(run, &step)) {
    snprintf(what, sizeof what, "; last checkpoint: step %" PRIu64, step);
  } else if (run->profile->kind == PEN_TRAIN) {
    snprintf(what, sizeof what, "; no checkpoint");
  }
  pen_end_progress_line();
  pen_warn("killed by a second SIGINT%s", what);
}

/* A spare has no ranks, and ends with the run. */
static bool waits_as_spare(const struct pen_watchdog *watchdog) {
  return watchdog->local_count == 0 && atomic_load(&watchdog->run->shared.control->run_ended) == 0;
}

/* A rank waits for the reader of what it writes as long as that likes, unless the run is to end. */
static void end_unread(struct pen_watchdog *watchdog, uint64_t passed_ns) {
  const struct pen_run *run = watchdog->run;
  bool waits = false;
  for (uint32_t r = 0; r < watchdog->rank_count; r++) {
    waits = waits || (pen_watchdog_is_local(watchdog, r) && !watchdog->ranks[r].exited &&
                      atomic_load(&run->shared.ranks[r].phase) == PEN_PHASE_OUTPUT);
  }
  const int number = pen_shared_stop_signal(&run->shared);
  watchdog->unread_ns = waits && number != 0 ? watchdog->unread_ns + passed_ns : 0;
  if (watchdog->unread_ns >= unread_ns && pen_shared_abort(&run->shared, 128u + (uint32_t)number)) {
    pen_warn("ended by a signal: nobody reads the rest of the output");
  }
}

/* The process that uses the library has ended without closing it: nobody wants the rest. */
static void end_with_caller(const struct pen_watchdog *watchdog) {
  const struct pen_mailbox *mailbox = watchdog->run->options->mailbox;
  if (mailbox != NULL && getppid() != (pid_t)mailbox->caller) {
    pen_shared_abort(&watchdog->run->shared, PEN_EXIT_LOST);
  }
}

static void watch_ranks(struct pen_watchdog *watchdog, const pid_t *pids) {
  struct pen_run *run = watchdog->run;
  struct pen_dashboard dashboard;
  struct pen_first_step first_step = {0};
  pen_dashboard_open(&dashboard);
  while ((watchdog->exited_count < watchdog->local_count || waits_as_spare(watchdog)) &&
         watchdog->lost == PEN_NONE && atomic_load(&run->shared.control->abort_status) == 0 &&
         !watchdog->force_quit) {
    const uint64_t passed_ns = poll_ranks(watchdog, poll_ns);
    pen_stall_count_time(watchdog, passed_ns);
    end_unread(watchdog, passed_ns);
    end_with_caller(watchdog);
    pen_stall_check(watchdog);
    pen_first_step_show(&first_step, run);
    if (run->options->watch) {
      pen_dashboard_draw(&dashboard, run, pids, watchdog->rank_count, false);
    }
  }
  if (run->options->watch) {
    pen_dashboard_draw(&dashboard, run, pids, watchdog->rank_count, true);
  }
}

int pen_supervise_ranks(struct pen_run *run, const pid_t *pids) {
  struct pen_watchdog watchdog = {.run = run,
                                  .rank_count = pen_process_count(run->plan),
                                  .local_count = run->local.count,
                                  .now_ns = pen_now_ns(),
                                  .lost = PEN_NONE,
                                  .send_index = pen_stall_index_sends(run->plan)};
  watchdog.ranks =
      pen_allocate(watchdog.rank_count, sizeof *watchdog.ranks, "%u ranks", watchdog.rank_count);
  for (uint32_t r = 0; r < watchdog.rank_count; r++) {
    watchdog.ranks[r].pid = pids[r];
  }
  watch_ranks(&watchdog, pids);
  const bool forced = watchdog.force_quit && watchdog.lost == PEN_NONE &&
                      watchdog.exited_count < watchdog.local_count &&
                      pen_shared_abort(&run->shared, 128 + SIGINT);
  if (watchdog.lost != PEN_NONE) {
    report_lost(&watchdog);
  }
  const bool all_exited = end_processes(&watchdog);
  if (forced) {
    print_force_quit(run);
  }
  pen_stall_free_index(run->plan, watchdog.send_index);
  free(watchdog.ranks);
  return all_exited ? (int)atomic_load(&run->shared.control->abort_status) : PEN_EXIT_LOST;
}
