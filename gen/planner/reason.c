/* reason.c: where the time of a step goes, and why a candidate is not the first. */
#include "gen/planner/reason.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"
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

static bool is_pipeline(const struct pen_planner *planner, const struct pen_plan_candidate *c) {
  return pen_choice_ranks(planner->axes, &c->choice) > 1;
}

/* How many of the candidates take as long as the first, with it. */
static size_t as_fast_count(const struct pen_plan_result *result) {
  const double least = pen_equal_time(result->best[0].step);
  size_t count = 1;
  while (count < result->count && pen_equal_time(result->best[count].step) == least) count++;
  return count;
}

static double percent_slower(const struct pen_plan_result *result, double step) {
  return 100 * (step / result->best[0].step - 1);
}

/* The part of the step in which a slower candidate exceeds the first most. */
static const char *advantage_over(const struct pen_plan_result *result, size_t index) {
  static const struct {
    const char *reason, *text;
  } texts[] = {
      {"recomputation", "it computes less than"},
      {"collectives", "what its replicas exchange, or do each for itself, takes less time than in"},
      {"imbalance", "its work is spread more evenly over the ranks than that of"},
      {"bubble", "its ranks wait less for each other than those of"},
      {"memory", "it takes less time than"},
  };
  const struct pen_plan_candidate *rival = &result->best[index];
  const char *reason = pen_reason_of(&result->best[0], rival);
  size_t row = 0;
  while (strcmp(texts[row].reason, reason)) row++;
  return pen_text("%s candidate %zu, which is %.3g%% slower", texts[row].text, index + 1,
                  percent_slower(result, rival->step));
}

/* What no pipeline that is not among the best can beat. */
static const char *others_text(const struct pen_plan_result *result) {
  if (!isfinite(result->others_least)) return "no pipeline fits";
  if (!(pen_equal_time(result->others_least) > pen_equal_time(result->best[0].step)))
    return "no pipeline is faster";
  return pen_text("a pipeline is at least %.3g%% slower",
                  percent_slower(result, result->others_least));
}

/* Of a first candidate that has one rank in each pipeline, where there could be more. */
static const char *no_pipeline_text(const struct pen_planner *planner,
                                    const struct pen_plan_result *result) {
  const char *text = "it is no pipeline, so that no stage waits for another";
  size_t index = 1;
  while (index < result->count && !is_pipeline(planner, &result->best[index])) index++;
  if (index == result->count) return pen_text("%s: %s", text, others_text(result));
  if (pen_equal_time(result->best[index].step) == pen_equal_time(result->best[0].step))
    return pen_text("%s: candidate %zu, a pipeline, takes as long", text, index + 1);
  return pen_text("%s: %s", text, advantage_over(result, index));
}

/* Of candidates that take as long as the first. */
static const char *tie_text(const struct pen_plan_result *result, size_t count) {
  const bool least = result->best[1].arena_bytes > result->best[0].arena_bytes;
  return pen_text("of the %zu that take as long it needs %s", count,
                  least ? "the least memory" : "as little memory as any");
}

const char *pen_because(const struct pen_planner *planner, const struct pen_plan_result *result) {
  const size_t as_fast = as_fast_count(result);
  const char *text = NULL, *tie = as_fast > 1 ? tie_text(result, as_fast) : NULL;
  if (planner->written->plan_ranks > 1 && !is_pipeline(planner, &result->best[0]))
    text = no_pipeline_text(planner, result);
  else if (as_fast < result->count)
    text = advantage_over(result, as_fast);
  if (!text && !tie) text = "no other candidate fits";
  return pen_text("first because %s%s%s", text ? text : "", text && tie ? "; " : "",
                  tie ? tie : "");
}
