/* fault.c: the parent while the ranks run: passes signals on, finds a rank that is dead, stopped or
 * stuck, says which and who waits for it, and sees that every process is gone. It looks at what
 * each rank tells of itself in shared memory. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/comm/failure_text.h"
#include "runtime/rank/run.h"
#include "runtime/supervise/dashboard.h"

static const uint64_t look_ns = 100 * 1000000ull; /* between two looks at the ranks */
static const uint64_t look_most_ns =
    120 * 1000000ull; /* counted for one look: while we were stopped, nobody stalled */
static const uint64_t stopped_ns = 200 * 1000000ull; /* a rank must be stopped so long, that is, for
                                                        two looks: ^Z stops and `fg` wakes all */
static const uint64_t silent_ns =
    500 * 1000000ull; /* behind which what the host of a device has told of it is old */
static const uint64_t waiter_ns =
    500 * 1000000ull; /* given the others to come to where they wait for a lost rank */
static const uint64_t grace_ns = 1000 * 1000000ull;  /* given the others to leave by themselves */
static const uint64_t death_ns = 10000 * 1000000ull; /* given the killed to be gone */
static const uint64_t again_ns = 1000 * 1000000ull;  /* behind the first SIGINT: what comes sooner,
                                                        as timeout(1) sends it, is the same */

/* What is known of one rank's process. Times grow by what passes between two looks. */
struct watched {
  pid_t pid;
  bool left;
  bool stopped;
  uint64_t stopped_ns;
  uint64_t finished;   /* at the last look */
  uint64_t still_ns;   /* since it finished an action */
  uint64_t busy_ns;    /* since it finished an action or waited */
  uint64_t connect_ns; /* since it began to connect */
  uint32_t heartbeat;  /* of a device's host, at the last look */
  uint64_t silent_ns;  /* since it told, while it should do nothing else */
  uint64_t device_ns;  /* of busy_ns, what it has waited for its device without a break */
};

struct watch {
  struct pen_run *run;
  struct watched *ranks;
  uint32_t rank_count;
  uint32_t here_count, left_count; /* of this command */
  uint64_t now_ns;
  uint32_t lost;           /* PEN_NONE while all is well */
  uint64_t interrupted_ns; /* when the first SIGINT came; 0: none */
  bool hurried; /* another came well behind it: who sits there does not want to wait for the step's
                   end */
  uint32_t **sent_by; /* [profiles][messages], where ranks meet: the sender's row that sends it */
  char cause[64];
};

/* Whether this command has started the rank: it speaks of no other's. */
static bool is_here(const struct watch *watch, uint32_t rank) {
  return rank - watch->run->local.first < watch->run->local.count;
}

static const struct pen_rank_state *state_of(const struct watch *watch, uint32_t rank) {
  return &watch->run->shared.ranks[rank];
}

static bool has_device(const struct watch *watch) {
  return strcmp(watch->run->plan->device, "cpu") != 0;
}

static bool meets(const struct watch *watch) {
  return strcmp(watch->run->plan->transport, "nccl") == 0;
}

/* A look asks for every two ranks on each chain of ranks that wait: with 512 of 12000 rows a search
 * of the rows took it 2.5 s, the index 2 ms. */
static uint32_t **index_sends(const struct pen_plan *plan) {
  uint32_t **sent_by = calloc(plan->profile_count, sizeof *sent_by);
  pen_check(sent_by != NULL, "no memory for %u profiles", plan->profile_count);
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_profile *profile = &plan->profiles[p];
    sent_by[p] = calloc(profile->message_count + 1u, sizeof *sent_by[p]);
    pen_check(sent_by[p] != NULL, "no memory for %u messages", profile->message_count);
    for (uint32_t r = 0; r < plan->rank_count; r++) {
      for (uint32_t i = 0; i < profile->ranks[r].action_count; i++) {
        const struct pen_action *row = &profile->ranks[r].actions[i];
        if (pen_kind_sends(row->kind)) {
          sent_by[p][row->message] = i;
        }
      }
    }
  }
  return sent_by;
}

static void drop_index(const struct pen_plan *plan, uint32_t **sent_by) {
  for (uint32_t p = 0; p < plan->profile_count && sent_by != NULL; p++) {
    free(sent_by[p]);
  }
  free(sent_by);
}

/* A rank on a device knows whom it waits for (queue_told.c), but for messages of NCCL's, of which
 * it knows no more than which rows have come. Where it waits for one whose sender is past the row
 * that sends it, and waits itself, it is not the sender that is waited for, but the rank's own
 * device. (A sender that does not wait may have stalled with the message. Which of two devices has
 * stalled cannot always be told from rows.) */
static bool was_sent(const struct watch *watch, uint32_t rank, uint32_t sender) {
  const struct pen_plan *plan = watch->run->plan;
  const struct pen_rank_state *state = state_of(watch, rank), *from = state_of(watch, sender);
  const uint32_t index = atomic_load(&state->profile);
  const struct pen_profile *profile = &plan->profiles[index];
  const struct pen_rank_program *waiting = &profile->ranks[rank % plan->rank_count];
  const uint64_t row = pen_action_index(state);
  const int32_t steps_ahead =
      (int32_t)(atomic_load(&from->published.count) - atomic_load(&state->published.count));
  if (row >= waiting->action_count || !pen_has_message(&waiting->actions[row]) || steps_ahead < 0) {
    return false;
  }
  const uint32_t message = waiting->actions[row].message;
  const bool sends =
      profile->channels[profile->messages[message].channel].from_rank == sender % plan->rank_count;
  return steps_ahead > 0 || (sends && pen_action_index(from) > watch->sent_by[index][message]);
}

/* On to whom a rank waits for; false: for nobody, as far as is known. */
static bool follow(const struct watch *watch, struct pen_awaited *at) {
  const uint32_t rank = at->rank;
  if (watch->ranks[rank].silent_ns >= silent_ns || !pen_failure_follow(&watch->run->shared, at)) {
    return false;
  }
  return !meets(watch) || atomic_load(&state_of(watch, at->rank)->waits_for) == 0 ||
         !was_sent(watch, rank, at->rank);
}

static bool waits(const struct watch *watch, uint32_t rank) {
  return follow(watch, &(struct pen_awaited){.rank = rank});
}

static void lose(struct watch *watch, uint32_t rank, const char *cause) {
  if (watch->lost == PEN_NONE) {
    watch->lost = rank;
    snprintf(watch->cause, sizeof watch->cause, "%s", cause);
  }
}

/* Whether a rank ends with that status by its own will: when it is done, or when the run's status
 * is known. A library may call exit(0) too. */
static bool is_own_end(const struct watch *watch, uint32_t rank, uint32_t status) {
  const uint32_t abort_status = atomic_load(&watch->run->shared.control->abort_status);
  return status == 0
             ? abort_status != 0 || atomic_load(&state_of(watch, rank)->phase) == PEN_PHASE_END
             : status == abort_status;
}

/* Takes note of a process that has ended. One that ended by an error of its own has said so, and
 * recorded its status. */
static void note_end(struct watch *watch, uint32_t rank, int status) {
  char cause[64];
  watch->ranks[rank].left = true;
  watch->left_count++;
  atomic_store(&watch->run->shared.ranks[rank].waits_for,
               0); /* whoever has left waits for nobody */
  if (WIFSIGNALED(status)) {
    snprintf(cause, sizeof cause, "signal %d", WTERMSIG(status));
    lose(watch, rank, cause);
  } else if (!is_own_end(watch, rank, (uint32_t)WEXITSTATUS(status))) {
    snprintf(cause, sizeof cause, "exit %d", WEXITSTATUS(status));
    lose(watch, rank, cause);
  }
}

static void reap(struct watch *watch) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    uint32_t r = 0;
    while (r < watch->rank_count && watch->ranks[r].pid != pid) {
      r++;
    }
    if (r == watch->rank_count) {
      continue; /* a child that we had before we became penstock */
    }
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      watch->ranks[r].stopped = WIFSTOPPED(status);
      watch->ranks[r].stopped_ns = 0;
    } else {
      note_end(watch, r, status);
    }
  }
}

/* SIGTERM means the same however often it comes: a batch system sends it again and again before it
 * kills. */
static void take_signal(struct watch *watch, int signal_number) {
  if (signal_number == SIGTERM || signal_number == SIGINT) {
    atomic_store(&watch->run->shared.control->stop_requested, 1);
  }
  if (signal_number == SIGINT && watch->interrupted_ns == 0) {
    watch->interrupted_ns = pen_now_ns();
  } else if (signal_number == SIGINT && pen_now_ns() - watch->interrupted_ns >= again_ns) {
    watch->hurried = true;
  }
}

/* Waits for a signal, at most `most_ns`; notes what it says. Returns the time that passed. */
static uint64_t look(struct watch *watch, uint64_t most_ns) {
  const sigset_t held = pen_blocked_signals();
  const struct timespec most = {.tv_nsec = (long)most_ns};
  take_signal(watch, sigtimedwait(&held, NULL, &most));
  reap(watch);
  uint64_t before_ns = watch->now_ns;
  watch->now_ns = pen_now_ns();
  uint64_t passed_ns = watch->now_ns - before_ns;
  return passed_ns < look_most_ns ? passed_ns : look_most_ns;
}

/* Lets each rank's clocks run; a rank that stays stopped is lost. */
static void count_time(struct watch *watch, uint64_t passed_ns) {
  for (uint32_t r = 0; r < watch->rank_count; r++) {
    struct watched *rank = &watch->ranks[r];
    const struct pen_rank_state *state = state_of(watch, r);
    uint64_t finished = atomic_load_explicit(&state->finished, memory_order_relaxed);
    uint32_t phase = atomic_load_explicit(&state->phase, memory_order_relaxed);
    bool moved = finished != rank->finished || phase != PEN_PHASE_STEPS || rank->left;
    rank->connect_ns = phase == PEN_PHASE_CONNECT ? rank->connect_ns + passed_ns : 0;
    rank->finished = finished;
    uint32_t heartbeat = atomic_load_explicit(&state->heartbeat, memory_order_relaxed);
    rank->silent_ns = heartbeat == 0 || heartbeat != rank->heartbeat || rank->left
                          ? 0
                          : rank->silent_ns + passed_ns;
    rank->heartbeat = heartbeat;
    rank->still_ns = moved ? 0 : rank->still_ns + passed_ns;
    rank->busy_ns = moved || waits(watch, r) ? 0 : rank->busy_ns + passed_ns;
    rank->device_ns =
        rank->busy_ns == 0 || atomic_load_explicit(&state->on_device, memory_order_relaxed) == 0
            ? 0
            : rank->device_ns + passed_ns;
    rank->stopped_ns += rank->stopped ? passed_ns : 0;
    if (rank->stopped && !rank->left && rank->stopped_ns >= stopped_ns) {
      lose(watch, r, "stopped");
    }
  }
}

/* Loses a rank that has stood still for so many timeouts. */
static void lose_stalled_for(struct watch *watch, uint32_t rank, uint64_t quiet_ns, int timeouts) {
  const double timeout_s = timeouts * watch->run->options->timeout;
  if ((double)quiet_ns >= timeout_s * 1e9) {
    char cause[64];
    snprintf(cause, sizeof cause, "no progress in %g s", timeout_s);
    lose(watch, rank, cause);
  }
}

static void lose_stalled(struct watch *watch, uint32_t rank, uint64_t quiet_ns) {
  lose_stalled_for(watch, rank, quiet_ns, 1);
}

static void say_unconnected(const struct watch *watch, uint32_t rank) {
  char what[PEN_BOOTSTRAP_TEXT_BYTES];
  pen_failure_bootstrap_text(what, sizeof what, watch->run->plan, &watch->run->shared, rank);
  fprintf(stderr, "penstock: rank %u cannot connect to the others by transport %s%s%s%s\n", rank,
          watch->run->plan->transport, what[0] == '\0' ? "" : ", ", what,
          meets(watch) ? ": NCCL_DEBUG=INFO says more" : "");
}

/* A connection that never comes to be stands without a word: as where peer-to-peer access is
 * broken, or NCCL has chosen the wrong interface. Who has connected waits at a barrier; of the
 * others, on whatever host, the one that is furthest behind is lost: the rest may wait for it. */
static void find_unconnected(struct watch *watch) {
  uint32_t behind = PEN_NONE;
  uint64_t longest_ns = 0;
  for (uint32_t r = 0; r < watch->rank_count && watch->lost == PEN_NONE; r++) {
    const uint64_t connect_ns = watch->ranks[r].connect_ns;
    if (connect_ns > 0 &&
        (behind == PEN_NONE || atomic_load(&state_of(watch, r)->bootstrap_stage) <
                                   atomic_load(&state_of(watch, behind)->bootstrap_stage))) {
      behind = r;
    }
    longest_ns = connect_ns > longest_ns ? connect_ns : longest_ns;
  }
  if (behind != PEN_NONE && is_here(watch, behind)) {
    lose_stalled_for(watch, behind, longest_ns, PEN_BOOTSTRAP_TIMEOUTS);
    if (watch->lost == behind) {
      say_unconnected(watch, behind);
    }
  }
}

/* From each rank that waits, follows the chain of who waits for whom to its end: a rank that is
 * busy, or (which no verified plan has) a circle. If that one has been so for the timeout, it is
 * lost. */
static void find_stalled(struct watch *watch) {
  for (uint32_t r = 0; r < watch->rank_count && watch->lost == PEN_NONE; r++) {
    const uint32_t most = 2 * watch->rank_count; /* each may be waited for in two ways */
    struct pen_awaited next = {.rank = r};
    uint32_t hops = 0, root = r;
    for (; hops <= most && follow(watch, &next); hops++) {
      root = next.rank;
    }
    uint64_t quiet_ns = hops <= most ? watch->ranks[root].busy_ns : watch->ranks[root].still_ns;
    if (root != r && is_here(watch, root)) {
      lose_stalled(watch, root, quiet_ns);
    }
  }
}

/* A device that stalls stops its rank, and the host that waits for it is no other rank. Nor may
 * others be seen to wait: there may be none, or steps that tell nothing of their progress. So
 * whoever waits for its own device for the timeout is lost; of several the one that has for
 * longest. A host that does something else meanwhile, as write where nobody reads, is not. */
static void find_stalled_device(struct watch *watch) {
  uint32_t longest = PEN_NONE;
  for (uint32_t r = 0; r < watch->rank_count && has_device(watch); r++) {
    if (is_here(watch, r) &&
        (longest == PEN_NONE || watch->ranks[r].device_ns > watch->ranks[longest].device_ns)) {
      longest = r;
    }
  }
  if (longest != PEN_NONE) {
    lose_stalled(watch, longest, watch->ranks[longest].device_ns);
  }
}

/* design.md §10, "Lost rank". */
static void say_lost(struct watch *watch, uint32_t waiter) {
  char text[PEN_FAILURE_LINE_BYTES], line[PEN_FAILURE_LINE_BYTES + 4];
  pen_failure_line(text, sizeof text, watch->run->plan, &watch->run->shared, watch->lost,
                   watch->cause, waiter);
  int bytes = snprintf(line, sizeof line, "%s%s\n", isatty(STDERR_FILENO) ? "\n" : "", text);
  ssize_t written = write(STDERR_FILENO, line, (size_t)bytes);
  (void)written;
}

/* Names the lost rank once somebody waits for it, or nobody does for a while, and lets all others
 * leave. */
static void announce(struct watch *watch) {
  uint32_t waiter = pen_failure_waiter(watch->run->plan, &watch->run->shared, watch->lost);
  for (uint64_t passed_ns = 0;
       waiter == PEN_NONE && passed_ns < waiter_ns && watch->left_count < watch->here_count;) {
    const struct timespec pause = {.tv_nsec = 5 * 1000000};
    nanosleep(&pause, NULL);
    passed_ns += (uint64_t)pause.tv_nsec;
    reap(watch);
    waiter = pen_failure_waiter(watch->run->plan, &watch->run->shared, watch->lost);
  }
  /* Read before the abort: it ends the waits. */
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&watch->run->shared.control->abort_status, &none,
                                     PEN_EXIT_LOST)) {
    say_lost(watch, waiter);
  }
  if (!watch->ranks[watch->lost].left) {
    kill(watch->ranks[watch->lost].pid, SIGKILL);
  }
  pen_shared_abort(&watch->run->shared, PEN_EXIT_LOST);
}

/* Waits until every process is gone, at most so long. */
static void await_left(struct watch *watch, uint64_t most_ns) {
  uint64_t end_ns = pen_now_ns() + most_ns;
  while (watch->left_count < watch->here_count && pen_now_ns() < end_ns) {
    look(watch, look_ns / 10);
  }
}

/* Sees every process gone. A signal does not reach one that waits in the kernel for a device that
 * hangs: the command ends without it, and returns false. */
static bool clear_away(struct watch *watch) {
  await_left(watch, grace_ns);
  for (uint32_t r = 0; r < watch->rank_count; r++) {
    if (is_here(watch, r) && !watch->ranks[r].left) {
      kill(watch->ranks[r].pid, SIGKILL);
    }
  }
  await_left(watch, death_ns);
  for (uint32_t r = 0; r < watch->rank_count; r++) {
    if (is_here(watch, r) && !watch->ranks[r].left) {
      fprintf(stderr,
              "penstock: rank %u (pid %d) cannot be killed: the device or disk that it waits for "
              "hangs\n",
              r, (int)watch->ranks[r].pid);
    }
  }
  return watch->left_count == watch->here_count;
}

/* What the ranks had saved when they were gone. */
static void say_at_once(const struct pen_run *run) {
  const uint64_t saved = atomic_load(&run->shared.control->saved_step);
  char what[64] = "";
  if (run->profile->kind == PEN_TRAIN) {
    snprintf(what, sizeof what, ": no step is saved");
  }
  if (run->profile->kind == PEN_TRAIN && (saved > 0 || run->first_step > 0)) {
    snprintf(what, sizeof what, ": all up to step %" PRIu64 " is saved",
             saved > 0 ? saved : run->first_step);
  }
  fprintf(stderr, "%spenstock: ended at once by a second SIGINT%s\n",
          isatty(STDERR_FILENO) ? "\n" : "", what);
}

int pen_watchdog(struct pen_run *run, const pid_t *pids) {
  uint32_t rank_count = pen_process_count(run->plan);
  struct watch watch = {.run = run,
                        .rank_count = rank_count,
                        .here_count = run->local.count,
                        .now_ns = pen_now_ns(),
                        .lost = PEN_NONE};
  watch.ranks = calloc(rank_count, sizeof *watch.ranks);
  pen_check(watch.ranks != NULL, "no memory for %u ranks", rank_count);
  watch.sent_by = meets(&watch) ? index_sends(run->plan) : NULL;
  for (uint32_t r = 0; r < rank_count; r++) {
    watch.ranks[r].pid = pids[r];
  }
  struct pen_control *control = run->shared.control;
  struct pen_dashboard display;
  pen_dashboard_open(&display);
  while (watch.left_count < watch.here_count && watch.lost == PEN_NONE &&
         atomic_load(&control->abort_status) == 0 && !watch.hurried) {
    count_time(&watch, look(&watch, look_ns));
    find_stalled(&watch);
    find_stalled_device(&watch);
    find_unconnected(&watch);
    if (run->options->watch) {
      pen_dashboard_draw(&display, run, pids, watch.rank_count, false);
    }
  }
  if (run->options->watch) {
    pen_dashboard_draw(&display, run, pids, watch.rank_count, true);
  }
  const bool at_once = watch.hurried && watch.lost == PEN_NONE &&
                       watch.left_count < watch.here_count &&
                       pen_shared_abort(&run->shared, 128 + SIGINT);
  if (watch.lost != PEN_NONE) {
    announce(&watch);
  }
  const bool all_left = clear_away(&watch);
  if (at_once) {
    say_at_once(run);
  }
  drop_index(run->plan, watch.sent_by);
  free(watch.ranks);
  return all_left ? (int)atomic_load(&control->abort_status) : PEN_EXIT_LOST;
}
