/* failure_report.h: each lost rank is reported once by the command of every host, in the words of
 * the command that has found it (docs/contracts.md section 10, "Lost rank"). */
#ifndef PEN_FAILURE_REPORT_H
#define PEN_FAILURE_REPORT_H

#include <stdbool.h>

#include "runtime/comm/shared_control.h"
#include "runtime/control/membership.h"

/* Keeps the line and the lost host, pen_lost_host() or 0, for the other hosts (control_sync.h),
 * unless there is a line for this rank or the run ends for another reason. Returns whether it is to
 * be printed, when the ranks have been told to end. Any thread of the command may call it. */
bool pen_failure_record(const struct pen_shared *shared, uint32_t rank, uint64_t host,
                        const char *line);
void pen_failure_say(const char *line);

/* Both at once. */
void pen_failure_report(const struct pen_shared *shared, uint32_t rank, uint64_t host,
                        const char *line);

/* A lost host (membership.h) and its state as one number. */
static inline uint64_t pen_lost_host(uint32_t host, enum pen_host_state state) {
  return (uint64_t)state << 32 | host;
}

/* Records when the first failure was detected, unless it is recorded. */
void pen_failure_detected(const struct pen_shared *shared);

/* The report with this index, from 0, in the order of reports; null: there are not so many. */
const struct pen_failure *pen_failure_reported(const struct pen_shared *shared, uint32_t index);

#endif
