/* dashboard.c: draws the ranks of a run (see dashboard.h):
 *
 *     step 120/300  loss 2.3106  norm 0.512  lr 0.001  19735 tokens/s  0:12 left
 *     rank  action       step                          memory  state
 *        0  5F3          [#########...........]  46 %  210 MiB  computes
 *        1  WAIT_NORM    [##################..]  91 %  198 MiB  waits for rank 0
 *
 * It costs the ranks nothing: they publish their progress for the watchdog anyway, and rank 0
 * publishes the results once a step. */
#include "runtime/supervise/dashboard.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/progress_bar.h"
#include "runtime/base/check.h"
#include "runtime/comm/action_text.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"
#include "runtime/observe/step_log.h"

enum { BAR = 20, LINES_PLAIN = 1 << 20 };
static const uint64_t terminal_ns = 200 * 1000000u, plain_ns = 10 * 1000 * 1000000ull;

void pen_dashboard_open(struct pen_dashboard *display) {
  *display = (struct pen_dashboard){.terminal = isatty(STDERR_FILENO) != 0};
}

/* Ranks that fit on the screen, below the two lines of headings. */
static uint32_t room(const struct pen_dashboard *display) {
  struct winsize size;
  if (!display->terminal) {
    return LINES_PLAIN;
  }
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4 ? (uint32_t)size.ws_row - 4
                                                                         : 20;
}

/* Resident memory of a process in MiB, its shared part included; 0 if it has exited. */
static uint64_t resident_mib(pid_t pid) {
  char path[64], text[128];
  uint64_t size = 0, pages = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  int64_t bytes = fd < 0 ? -1 : pen_file_read_at(fd, text, sizeof text - 1, 0);
  if (fd >= 0) {
    close(fd);
  }
  text[bytes < 0 ? 0 : bytes] = '\0';
  return sscanf(text, "%" SCNu64 " %" SCNu64, &size, &pages) == 2
             ? pages * (uint64_t)sysconf(_SC_PAGESIZE) >> 20
             : 0;
}

/* How the rank is slower than its plan; known on rank 0's host. */
static void add_slowness(char *text, size_t bytes, const struct pen_rank_state *state) {
  const uint32_t kind = atomic_load_explicit(&state->slow_kind, memory_order_relaxed);
  const double ratio = atomic_load_explicit(&state->slow_ratio, memory_order_relaxed);
  const size_t used = strlen(text);
  if (kind == PEN_SLOW_LINK) {
    snprintf(text + used, bytes - used, "; slow: messages take %.1f times their plan", ratio);
  } else if (kind != PEN_SLOW_NONE) {
    snprintf(text + used, bytes - used, "; slow: at %.2f of its plan%s", ratio,
             kind == PEN_SLOW_DATA ? ", for its data" : "");
  }
}

/* The phase of the rank, or the rank that it waits for. */
static const char *state_text(char *text, size_t bytes, const struct pen_rank_state *state) {
  static const char *const phases[] = {[PEN_PHASE_START] = "starts",
                                       [PEN_PHASE_CONNECT] = "connects",
                                       [PEN_PHASE_STEPS] = "computes",
                                       [PEN_PHASE_SAVE] = "saves",
                                       [PEN_PHASE_OUTPUT] = "waits for a reader",
                                       [PEN_PHASE_END] = "has ended"};
  uint32_t waits_for = atomic_load_explicit(&state->waits_for, memory_order_relaxed);
  snprintf(text, bytes, "%s", phases[atomic_load_explicit(&state->phase, memory_order_relaxed)]);
  if (waits_for != 0) {
    snprintf(text, bytes, "waits for rank %" PRIu32, waits_for - 1);
  }
  add_slowness(text, bytes, state);
  return text;
}

static void write_rank(struct pen_writer *out, const struct pen_run *run, uint32_t rank,
                       pid_t pid) {
  const struct pen_rank_state *state = &run->shared.ranks[rank];
  const struct pen_plan *plan = run->plan;
  uint32_t profile =
      atomic_load_explicit(&state->profile, memory_order_relaxed) % plan->profile_count;
  const struct pen_rank_program *program =
      &plan->profiles[profile].ranks[pen_table_rank(plan, rank)];
  uint64_t began = atomic_load_explicit(&state->step_began, memory_order_relaxed);
  uint64_t row = (atomic_load_explicit(&state->finished, memory_order_relaxed) - began) %
                 program->action_count;
  char action[64], bar[BAR + 1], about[128];
  pen_progress_bar_fill(bar, BAR, (double)row / program->action_count);
  pen_writer_print(out, "%4" PRIu32 "  %-12s [%s] %3u %% %4" PRIu64 " MiB  %s", rank,
                   pen_action_name_reported(action, sizeof action, &program->actions[row]), bar,
                   (unsigned)(row * 100 / program->action_count), resident_mib(pid),
                   state_text(about, sizeof about, state));
}

static void write_summary(struct pen_writer *out, const struct pen_run *run) {
  const struct pen_progress *progress = &run->shared.control->progress;
  char left[32], loss[PEN_MEAN_SHOWN_BYTES], norm[PEN_MEAN_SHOWN_BYTES];
  if (atomic_load(&progress->step) == 0) { /* none has ended */
    pen_writer_print(out, "step %" PRIu64 "/%" PRIu64, run->first_step,
                     run->first_step + run->steps);
    return;
  }
  const uint64_t targets = atomic_load(&progress->targets);
  pen_clock_text(left, sizeof left, atomic_load(&progress->left_s));
  pen_writer_print(
      out, "step %" PRIu64 "/%" PRIu64 "  loss %s  norm %s  lr %.4g  %.0f tokens/s  %s left",
      atomic_load(&progress->step), run->first_step + run->steps,
      pen_mean_shown(loss, 'f', targets, atomic_load(&progress->loss)),
      pen_mean_shown(norm, 'g', targets, atomic_load(&progress->norm)),
      atomic_load(&progress->learning_rate), atomic_load(&progress->tokens_per_second), left);
}

void pen_dashboard_draw(struct pen_dashboard *display, const struct pen_run *run, const pid_t *pids,
                        uint32_t count, bool last) {
  static struct pen_writer out;
  const char *end_line = display->terminal ? "\033[K\n" : "\n";
  uint64_t now_ns = pen_now_ns(), pause_ns = display->terminal ? terminal_ns : plain_ns;
  uint32_t shown = count < room(display) ? count : room(display);
  if (!last && now_ns - display->drawn_ns < pause_ns) {
    return;
  }
  display->drawn_ns = now_ns;
  pen_writer_open(&out, STDERR_FILENO);
  if (display->terminal && display->lines > 0) {
    pen_writer_print(&out, "\033[%" PRIu32 "A\r", display->lines);
  }
  write_summary(&out, run);
  pen_writer_text(&out, end_line);
  if (last) { /* the ranks have exited */
    pen_writer_text(&out, display->terminal ? "\033[J" : "");
    pen_writer_flush(&out);
    return;
  }
  pen_writer_text(&out, "rank  action       step                          memory  state");
  pen_writer_text(&out, end_line);
  for (uint32_t r = 0; r < shown; r++) {
    write_rank(&out, run, r, pids[r]);
    pen_writer_text(&out, end_line);
  }
  if (shown < count) {
    pen_writer_print(&out, "      and %" PRIu32 " more%s", count - shown, end_line);
  }
  display->lines = 2 + shown + (shown < count);
  pen_writer_flush(&out); /* errors are ignored: a closed terminal stops no training */
}

static const uint64_t pause_ns = 10 * 1000000000ull;

/* A rank that has not begun its steps; PEN_NONE: all have. */
static uint32_t rank_that_starts(const struct pen_run *run) {
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    if (atomic_load(&run->shared.ranks[r].phase) < PEN_PHASE_STEPS) {
      return r;
    }
  }
  return PEN_NONE;
}

/* Of the actions of all ranks in the step, those that are done. */
static unsigned percent_done(const struct pen_run *run) {
  const struct pen_plan *plan = run->plan;
  uint64_t done = 0, all = 0;
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    const struct pen_rank_state *state = &run->shared.ranks[r];
    const struct pen_profile *profile = &plan->profiles[atomic_load(&state->profile)];
    const uint64_t count = profile->ranks[pen_table_rank(plan, r)].action_count,
                   finished = atomic_load(&state->finished);
    done += finished < count ? finished : count;
    all += count;
  }
  return (unsigned)(done * 100 / all);
}

void pen_first_step_show(struct pen_first_step *shown, const struct pen_run *run) {
  const uint64_t now_ns = pen_now_ns();
  if (run->options->quiet || run->options->watch || run->local.first != 0 ||
      atomic_load(&run->shared.control->logged.count) > 0) {
    return;
  }
  if (shown->start_ns == 0) {
    shown->start_ns = shown->shown_ns = now_ns;
  }
  if (now_ns - shown->shown_ns < pause_ns) {
    return;
  }
  const uint32_t starting = rank_that_starts(run);
  const unsigned seconds = (unsigned)((now_ns - shown->start_ns) / 1000000000);
  shown->shown_ns = now_ns;
  if (starting == PEN_NONE) {
    pen_say(run->plan->name, "step %" PRIu64 ": %u s, %u %% of its actions", run->first_step + 1,
            seconds, percent_done(run));
  } else {
    pen_say(run->plan->name, "starting: %u s; rank %u %s", seconds, starting,
            atomic_load(&run->shared.ranks[starting].phase) == PEN_PHASE_START ? "opens its files"
                                                                               : "connects");
  }
}
