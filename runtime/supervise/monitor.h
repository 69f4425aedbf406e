/* monitor.h: what the command of rank 0's host does after each step of training, in a thread of its
 * own, which sleeps until rank 0 has reported a step: it names slow ranks and links (slow.h) and
 * replaces the file of --metrics. */
#ifndef PEN_MONITOR_H
#define PEN_MONITOR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/rank/run.h"

struct pen_metrics {
  char path[PATH_MAX], temporary[PATH_MAX]; /* in the same folder */
  const char *name;                         /* as the option has it */
  bool warned;
};

/* Writes FILE with the state before the first step. Fails (73) where it cannot be made; after a
 * restart, perhaps on another host, that is a warning. */
void pen_metrics_open(struct pen_metrics *metrics, const struct pen_run *run);

struct pen_monitor;

/* Before the ranks start: opens the file of --metrics, and fails (73) where it cannot be made. Null
 * on other hosts, and where the run does not train. Allocates. */
struct pen_monitor *pen_monitor_open(struct pen_run *run);

/* Once the ranks have been started. All signals are blocked. */
void pen_monitor_start(struct pen_monitor *monitor);

/* After all ranks have exited: handles the last step. Null is allowed. */
void pen_monitor_close(struct pen_monitor *monitor);

#endif
