/* progress.c: what a search has done so far. */
#include "gen/search/progress.h"

#include <string.h>

#include "gen/base/arena.h"

void pen_search_progress_add(struct pen_search_progress *progress,
                             const struct pen_search_timeline *timeline) {
  progress->timeline[progress->timeline_count++] = timeline;
}

void pen_search_progress_order(struct pen_search_progress *progress,
                               const struct pen_timing *timing) {
  progress->candidates++;
  if (!progress->by_percentile)
    pen_search_progress_value(progress, progress->by_span ? timing->span : timing->makespan);
}

void pen_search_progress_value(struct pen_search_progress *progress, double value) {
  size_t count = progress->point_count;
  if (count > 0 && value >= progress->point[count - 1].value) return;
  PEN_RESERVE(progress->point, count + 1);
  progress->point[progress->point_count++] =
      (struct pen_search_point){pen_search_progress_work(progress), value};
}

void pen_search_progress_start(struct pen_search_progress *progress, const char *name,
                               const struct pen_timing *timing, double value) {
  if (progress->start && value >= progress->start_value) return;
  progress->start = name;
  progress->start_makespan = timing->makespan;
  progress->start_value = value;
}

uint64_t pen_search_progress_work(const struct pen_search_progress *progress) {
  uint64_t work = progress->work;
  for (size_t i = 0; i < progress->timeline_count; i++) work += progress->timeline[i]->work;
  return work;
}

uint64_t pen_search_progress_moves(const struct pen_search_progress *progress) {
  uint64_t moves = progress->moves;
  for (size_t i = 0; i < progress->timeline_count; i++) moves += progress->timeline[i]->moves;
  return moves;
}

struct pen_search_point *pen_search_progress_trace(const struct pen_search_progress *progress,
                                                   double last, size_t *count) {
  struct pen_search_point *trace = pen_new(progress->point_count + 1, sizeof *trace);
  uint64_t work = pen_search_progress_work(progress);
  bool reached = false;
  *count = 0;
  for (size_t i = 0; i < progress->point_count && !reached; i++) {
    struct pen_search_point point = progress->point[i];
    reached = point.value <= last;
    trace[(*count)++] = (struct pen_search_point){point.work, reached ? last : point.value};
  }
  if (*count == 0 || trace[*count - 1].work < work)
    trace[(*count)++] = (struct pen_search_point){work, last};
  return trace;
}
