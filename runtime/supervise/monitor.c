/* monitor.c: the thread of the command of rank 0's host (see monitor.h). */
#include "runtime/supervise/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/supervise/slow.h"

static const uint64_t sleep_ns = 100 * 1000000ull; /* at most, between two looks at `stopping` */
/* From a step until it is handled: the other ranks end it, and shorter steps are handled together.
 */
static const long metrics_pause_ns = 10 * 1000000, pause_ns = 50 * 1000000;

/* ---- train --metrics FILE: the state of the run in Prometheus's text format. FILE is replaced by
 * rename(), so that a reader finds one state, whole. Nothing here allocates ---- */

enum { TEXT_BYTES = 4096 };

/* What a metrics file says. Prometheus has no other word for a number that there is not than NaN.
 */
struct values {
  double step, loss, tokens_per_second, step_seconds, expert_load, sent_bytes, restarts, slow_ranks;
};

static const struct metric {
  const char *name, *type, *help;
  size_t offset; /* in struct values */
} metrics_written[] = {
    {"penstock_step", "gauge", "Optimizer steps that have ended.", offsetof(struct values, step)},
    {"penstock_loss", "gauge", "Loss of the last step.", offsetof(struct values, loss)},
    {"penstock_tokens_per_second", "gauge", "Targets of the last step by its time.",
     offsetof(struct values, tokens_per_second)},
    {"penstock_step_seconds", "gauge", "Time of the last step.",
     offsetof(struct values, step_seconds)},
    {"penstock_expert_load", "gauge",
     "Tokens of the fullest expert of the last step over the mean of its layer, NaN without "
     "experts.",
     offsetof(struct values, expert_load)},
    {"penstock_sent_bytes_total", "counter",
     "Bytes that all ranks have sent by messages and collectives since the run began.",
     offsetof(struct values, sent_bytes)},
    {"penstock_restarts_total", "counter", "Restarts of all ranks after a loss.",
     offsetof(struct values, restarts)},
    {"penstock_slow_ranks", "gauge", "Ranks that are slower than the plan, relative to the others.",
     offsetof(struct values, slow_ranks)},
};

/* The last step reported, all of it of one step. */
static void read_progress(struct values *values, const struct pen_run *run) {
  const struct pen_progress *progress = &run->shared.control->progress;
  uint32_t version;
  do {
    version = atomic_load(&progress->version);
    values->step = (double)atomic_load(&progress->step);
    values->loss = atomic_load(&progress->targets) > 0 ? atomic_load(&progress->loss) : (double)NAN;
    values->tokens_per_second = atomic_load(&progress->tokens_per_second);
    values->step_seconds = atomic_load(&progress->step_seconds);
    values->expert_load = atomic_load(&progress->expert_load);
  } while (version % 2 != 0 || atomic_load(&progress->version) != version);
  if (version == 0) { /* no step has ended */
    values->step = (double)run->first_step;
    values->loss = NAN;
  }
  if (values->expert_load <= 0) {
    values->expert_load = NAN;
  }
}

static void number_text(char *text, size_t bytes, double value) {
  if (isnan(value)) {
    snprintf(text, bytes, "NaN");
  } else if (isinf(value)) {
    snprintf(text, bytes, value > 0 ? "+Inf" : "-Inf");
  } else {
    snprintf(text, bytes, "%.17g", value);
  }
}

static size_t write_text(char *text, const struct values *values) {
  size_t used = 0;
  for (size_t i = 0; i < sizeof metrics_written / sizeof *metrics_written; i++) {
    char number[32];
    number_text(number, sizeof number,
                *(const double *)(const void *)((const char *)values + metrics_written[i].offset));
    used +=
        (size_t)snprintf(text + used, TEXT_BYTES - used, "# HELP %s %s\n# TYPE %s %s\n%s %s\n",
                         metrics_written[i].name, metrics_written[i].help, metrics_written[i].name,
                         metrics_written[i].type, metrics_written[i].name, number);
  }
  return used;
}

/* Returns 0, or -1 with errno set. */
static int replace_file(const struct pen_metrics *metrics, const struct values *values) {
  char text[TEXT_BYTES];
  const size_t bytes = write_text(text, values);
  const int fd = open(metrics->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return -1;
  }
  int result = pen_file_write(fd, text, bytes), cause = errno;
  if (close(fd) != 0 && result == 0) {
    result = -1;
    cause = errno;
  }
  if (result == 0 && rename(metrics->temporary, metrics->path) != 0) {
    result = -1;
    cause = errno;
  }
  if (result != 0) {
    unlink(metrics->temporary);
    errno = cause;
  }
  return result;
}

/* A symbolic link stays, and what it names is replaced. Returns why it cannot be; null: it can. */
static const char *set_paths(struct pen_metrics *metrics) {
  struct stat status;
  const bool exists = stat(metrics->name, &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    return "not a regular file";
  }
  if (!exists || realpath(metrics->name, metrics->path) == NULL) {
    snprintf(metrics->path, sizeof metrics->path, "%s", metrics->name);
  }
  if (strlen(metrics->name) >= sizeof metrics->path ||
      pen_path_suffix(metrics->temporary, metrics->path, ".tmp") != 0) {
    metrics->temporary[0] = '\0';
    return strerror(ENAMETOOLONG);
  }
  return NULL;
}

static void warn(struct pen_metrics *metrics, const char *why) {
  metrics->warned = true;
  pen_warn("--metrics %s: %s; training continues without it", metrics->name, why);
}

void pen_metrics_open(struct pen_metrics *metrics, const struct pen_run *run) {
  const struct values values = {.step = (double)run->first_step,
                                .loss = NAN,
                                .sent_bytes = (double)run->sent_bytes,
                                .restarts = (double)run->restart.count};
  *metrics = (struct pen_metrics){.name = run->options->metrics};
  const char *why = set_paths(metrics);
  if (why == NULL && replace_file(metrics, &values) != 0) {
    why = strerror(errno);
  }
  if (why != NULL && run->restart.count == 0) {
    pen_fail(PEN_EXIT_CANNOT_CREATE, "--metrics %s: %s", metrics->name, why);
  }
  if (why != NULL) {
    warn(metrics, why);
  }
}

/* Replaces FILE. The first failure is a warning: training continues. */
static void metrics_write(struct pen_metrics *metrics, const struct pen_run *run,
                          uint32_t slow_ranks) {
  struct values values = {.restarts = (double)run->restart.count,
                          .sent_bytes = (double)run->sent_bytes,
                          .slow_ranks = slow_ranks};
  read_progress(&values, run);
  for (uint32_t r = 0; r < run->shared.process_count; r++) {
    values.sent_bytes +=
        (double)atomic_load_explicit(&run->shared.ranks[r].sent_bytes, memory_order_relaxed);
  }
  if (replace_file(metrics, &values) != 0 && !metrics->warned) {
    warn(metrics, strerror(errno));
  }
}

struct pen_monitor {
  struct pen_run *run;
  struct pen_metrics metrics;
  struct pen_slow *slow;
  pthread_t thread;
  bool started;
  _Atomic bool stopping;
};

static void handle_steps(struct pen_monitor *monitor) {
  pen_slow_judge(monitor->slow);
  if (monitor->run->options->metrics != NULL) {
    metrics_write(&monitor->metrics, monitor->run, pen_slow_count(monitor->slow));
  }
}

static void *run_monitor(void *argument) {
  struct pen_monitor *monitor = argument;
  struct pen_futex_counter *logged = &monitor->run->shared.control->logged;
  const bool has_metrics = monitor->run->options->metrics != NULL;
  const struct timespec pause = {.tv_nsec = has_metrics ? metrics_pause_ns : pause_ns};
  uint32_t seen = 0;
  while (!atomic_load(&monitor->stopping)) {
    if (pen_futex_counter_wait_for(logged, seen + 1, 0, sleep_ns)) {
      nanosleep(&pause, NULL);
      seen = atomic_load(&logged->count);
      handle_steps(monitor);
    }
  }
  if (atomic_load(&logged->count) > 0) { /* the last step may be one that not all ranks had ended */
    handle_steps(monitor);
  }
  return NULL;
}

struct pen_monitor *pen_monitor_open(struct pen_run *run) {
  if (run->local.first != 0 || run->profile->kind != PEN_TRAIN) {
    return NULL;
  }
  struct pen_monitor *monitor = pen_allocate(1, sizeof *monitor, "the thread that handles steps");
  monitor->run = run;
  monitor->slow = pen_slow_open(run);
  if (run->options->metrics != NULL) {
    pen_metrics_open(&monitor->metrics, run);
  }
  return monitor;
}

void pen_monitor_start(struct pen_monitor *monitor) {
  if (monitor != NULL) {
    pen_check(pthread_create(&monitor->thread, NULL, run_monitor, monitor) == 0,
              "cannot start the thread that handles steps");
    monitor->started = true;
  }
}

void pen_monitor_close(struct pen_monitor *monitor) {
  if (monitor != NULL && monitor->started) {
    atomic_store(&monitor->stopping, true);
    pen_futex_counter_wake(&monitor->run->shared.control->logged);
    pthread_join(monitor->thread, NULL);
  }
  if (monitor != NULL) {
    pen_slow_close(monitor->slow);
  }
  free(monitor);
}
