/* reason.c: where the time of a step goes, and why a candidate is not the first. */
#include "gen/model/recompute.h"
#include "gen/planner/reason.h"

#include <math.h>

#include "gen/planner/equal_time.h"

/* The part of a stage's backward that computes again: by flops, as gen/timing/cost.c counts it. */
static double recomputed_cost(const struct pen_trial *trial, uint32_t stage) {
  const struct pen_graph *graph = trial->graph[stage];
  const double again = pen_recomputed_flops(graph),
               input = pen_program_flops(&graph->program[PEN_PROGRAM_I]);
  return input > 0 ? trial->cost.stage[stage].backward_input * again / input : 0;
}

struct pen_time_parts pen_time_parts_of(const struct pen_trial *trial,
                                        const struct pen_timing *timing) {
  const struct pen_partition *p = trial->partition;
  struct pen_time_parts parts = {0};
  double busy = 0, most = 0;
  for (uint32_t s = 0; s < p->stage_count; s++)
    parts.recomputation += recomputed_cost(trial, s) * p->microbatch_count / p->rank_count;
  for (uint32_t r = 0; r < p->rank_count; r++) {
    busy += timing->busy[r];
    most = fmax(most, timing->busy[r]);
  }
  parts.imbalance = most - busy / p->rank_count;
  parts.collectives = timing->exposed;
  parts.bubble = fmax(0, timing->makespan - most - timing->exposed);
  return parts;
}

const char *pen_reason_of(const struct pen_plan_candidate *first,
                          const struct pen_plan_candidate *candidate) {
  const struct pen_time_parts *a = &first->parts, *b = &candidate->parts;
  const struct {
    const char *reason;
    double more;
  } parts[] = {{"recomputation", b->recomputation - a->recomputation},
               {"collectives", b->collectives - a->collectives},
               {"imbalance", b->imbalance - a->imbalance},
               {"bubble", b->bubble - a->bubble}};
  const char *reason = "memory";
  double most = 0;
  if (pen_equal_time(candidate->makespan) == pen_equal_time(first->makespan)) return reason;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!(parts[i].more > most)) continue;
    reason = parts[i].reason;
    most = parts[i].more;
  }
  return most > 0 ? reason : "bubble";
}
