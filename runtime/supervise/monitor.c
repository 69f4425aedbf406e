/* monitor.c: the thread of the command of rank 0's host (see monitor.h). */
#include "runtime/supervise/monitor.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base/check.h"
#include "runtime/supervise/metrics.h"
#include "runtime/supervise/slow.h"

static const uint64_t sleep_ns = 100 * 1000000ull; /* at most, between two looks at `stopping` */
/* From a step until it is handled: the other ranks end it, and shorter steps are handled together.
 */
static const long metrics_pause_ns = 10 * 1000000, pause_ns = 50 * 1000000;

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
    pen_metrics_write(&monitor->metrics, monitor->run, pen_slow_count(monitor->slow));
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
  struct pen_monitor *monitor = calloc(1, sizeof *monitor);
  pen_check(monitor != NULL, "no memory for the thread that handles steps");
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
