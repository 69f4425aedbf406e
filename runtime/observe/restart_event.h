/* restart_event.h: the report of a restart after ranks were lost, in the log and on standard error.
 */
#ifndef PEN_RESTART_EVENT_H
#define PEN_RESTART_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/observe/step_log.h"

struct pen_lost_rank {
  uint32_t rank;
  char host[PEN_HOST_BYTES];
  char cause[PEN_FAILURE_LINE_BYTES]; /* the line that reported it */
};

/* Why and from where the ranks were started again. */
struct pen_restart {
  uint64_t count;      /* restarts of the run; 0: none, and what follows means nothing */
  uint64_t lost_ns;    /* when the loss was detected */
  uint64_t saved_step; /* of the run's last checkpoint; 0: it has saved none */
  bool lacks_memory;   /* the run has made no step, and a loss was of pen_failure_is_memory() */
  bool from_memory;    /* or from a checkpoint, or from the beginning */
  uint32_t fallback;   /* that it continues with, from 1; 0: the plan itself */
  uint32_t lost_count; /* since the last restart that began a step */
  struct pen_lost_rank lost[PEN_FAILURES_MAX];
};

/* On rank 0, when the first step after a restart begins; allocates nothing. */
void pen_restart_report(struct pen_log *log, const struct pen_restart *restart);

#endif
