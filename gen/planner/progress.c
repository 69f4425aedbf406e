/* progress.c: shows how far the planner is. */
#include "gen/planner/progress.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/progress_bar.h"
#include "gen/base/error.h"

enum { COUNTS_BYTES = 160 };
/* On a terminal a bar; elsewhere lines, of which a search of less than a second has none, and a
 * long one has not too many. */
static const double bar_seconds = 0.1, first_line_seconds = 1, line_seconds = 5, line_share = 0.1;
static double begin_seconds, next_seconds;
static bool has_begun, is_shown;

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void pen_plan_progress_show(const struct pen_planner *planner, const char *what, double share,
                            uint64_t candidates, uint64_t evaluated) {
  const bool bar = planner->on_terminal;
  const double now = now_seconds();
  if (!has_begun) {
    begin_seconds = now;
    next_seconds = now + (bar ? 0 : first_line_seconds);
  }
  has_begun = true;
  if (now < next_seconds) return;
  next_seconds = now + (bar ? bar_seconds : fmax(line_seconds, line_share * (now - begin_seconds)));
  is_shown = bar;
  char counts[COUNTS_BYTES];
  snprintf(counts, sizeof counts, "%s: %llu candidates, %llu evaluated", what,
           (unsigned long long)candidates, (unsigned long long)evaluated);
  if (bar)
    pen_progress_bar_show(share, "%s", counts);
  else
    pen_tell("penstock-plan: %3.0f%%  %s", 100 * share, counts);
}

void pen_plan_progress_end(void) {
  if (is_shown) pen_progress_bar_clear();
  is_shown = false;
}
