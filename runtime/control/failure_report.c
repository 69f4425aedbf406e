/* failure_report.c: reports of lost ranks (see failure_report.h). */
#include "runtime/control/failure_report.h"

#include <stdio.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"

void pen_failure_detected(const struct pen_shared *shared) {
  uint64_t none = 0;
  atomic_compare_exchange_strong(&shared->control->lost_ns, &none, pen_now_ns());
}

bool pen_failure_record(const struct pen_shared *shared, uint32_t rank, uint64_t host,
                        const char *line) {
  struct pen_control *control = shared->control;
  const uint32_t abort_status = atomic_load(&control->abort_status);
  uint32_t no = 0;
  if ((abort_status != 0 && abort_status != PEN_EXIT_LOST) ||
      !atomic_compare_exchange_strong(&shared->ranks[rank].reported, &no, 1)) {
    return false;
  }
  pen_failure_detected(shared);
  const uint32_t index = atomic_fetch_add(&control->failure_count, 1);
  if (index < PEN_FAILURES_MAX) {
    struct pen_failure *failure = &control->failures[index];
    failure->rank = rank;
    failure->host = host;
    snprintf(failure->line, sizeof failure->line, "%s", line);
    atomic_store(&failure->complete, 1);
  }
  return true;
}

void pen_failure_say(const char *line) {
  pen_end_progress_line();
  pen_say_line(line);
}

void pen_failure_report(const struct pen_shared *shared, uint32_t rank, uint64_t host,
                        const char *line) {
  if (pen_failure_record(shared, rank, host, line)) {
    pen_failure_say(line);
  }
}

const struct pen_failure *pen_failure_reported(const struct pen_shared *shared, uint32_t index) {
  const struct pen_failure *failure = &shared->control->failures[index];
  return index < PEN_FAILURES_MAX && atomic_load(&failure->complete) != 0 ? failure : NULL;
}
