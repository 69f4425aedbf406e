/* progress.h: what a search has done so far: what it started from, and how its best order improved
 * with the work. */
#ifndef PEN_PROGRESS_H
#define PEN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/search/timeline.h"
#include "gen/timing/timing.h"

/* The best value of the objective after some work: actions timed in total. */
struct pen_search_point {
  uint64_t work;
  double value;
};

enum { PEN_SEARCH_TIMELINES = 4 }; /* two placements, each by two objectives */

struct pen_search_progress {
  bool by_span, by_percentile; /* the objective; neither: the makespan */
  const struct pen_search_timeline *timeline[PEN_SEARCH_TIMELINES];
  size_t timeline_count;
  uint64_t work, moves; /* of timelines that are not listed */
  uint64_t candidates;  /* complete orders within the limit that were compared */
  const char *start;    /* the best order before any move; null: none */
  double start_makespan, start_value;
  struct pen_search_point *point; /* [point_count] improvements, by ascending work */
  size_t point_count;
};

/* Adds a timeline, whose work counts. */
void pen_search_progress_add(struct pen_search_progress *progress,
                             const struct pen_search_timeline *timeline);

/* Counts an order within the limit; its value counts unless the objective is the percentile. */
void pen_search_progress_order(struct pen_search_progress *progress,
                               const struct pen_timing *timing);

/* Takes a value of the objective. */
void pen_search_progress_value(struct pen_search_progress *progress, double value);

/* Takes an order as the best start if its value is better. */
void pen_search_progress_start(struct pen_search_progress *progress, const char *name,
                               const struct pen_timing *timing, double value);

/* The work and the moves of all timelines. */
uint64_t pen_search_progress_work(const struct pen_search_progress *progress);
uint64_t pen_search_progress_moves(const struct pen_search_progress *progress);

/* [*count] the improvements until the value is `last`, and `last` at the end of the work. */
struct pen_search_point *pen_search_progress_trace(const struct pen_search_progress *progress,
                                                   double last, size_t *count);

#endif
