/* metrics.h: train --metrics FILE: the state of the run in Prometheus's text format.
 *
 * FILE is replaced by rename(), so that a reader finds one state, whole. Nothing here allocates. */
#ifndef PEN_METRICS_H
#define PEN_METRICS_H

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

/* Replaces FILE. The first failure is a warning: training continues. */
void pen_metrics_write(struct pen_metrics *metrics, const struct pen_run *run, uint32_t slow_ranks);

#endif
