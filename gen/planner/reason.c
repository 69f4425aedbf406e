/* reason.c: where the time of a step goes, and why a candidate is not the first. */
#include "gen/planner/reason.h"

#include <math.h>

#include "gen/planner/equal_time.h"

struct pen_time_parts pen_time_parts_of(const struct pen_partition *partition,
                                        const struct pen_timing *timing,
                                        const struct pen_step_time *step) {
  struct pen_time_parts parts = {0};
  double most = 0;
  for (uint32_t r = 0; r < partition->rank_count; r++) {
    parts.work += timing->busy[r] / partition->rank_count;
    most = fmax(most, timing->busy[r]);
  }
  parts.imbalance = most - parts.work + (step->step - timing->makespan - step->update);
  parts.collectives = timing->exposed + step->update;
  parts.bubble = timing->makespan - most - timing->exposed;
  return parts;
}

const char *pen_reason_of(const struct pen_plan_candidate *first,
                          const struct pen_plan_candidate *candidate) {
  const struct pen_time_parts *a = &first->parts, *b = &candidate->parts;
  const struct {
    const char *reason;
    double more;
  } parts[] = {{"recomputation", b->work - a->work},
               {"collectives", b->collectives - a->collectives},
               {"imbalance", b->imbalance - a->imbalance},
               {"bubble", b->bubble - a->bubble}};
  const char *reason = "memory";
  double most = 0;
  if (pen_equal_time(candidate->step) == pen_equal_time(first->step)) return reason;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!(parts[i].more > most)) continue;
    reason = parts[i].reason;
    most = parts[i].more;
  }
  return reason;
}
