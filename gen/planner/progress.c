/* progress.c: shows how far the planner is. */
#include "gen/planner/progress.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 30 };
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

static void draw_bar(double share) {
  char bar[BAR_CELLS + 1];
  const int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
  memset(bar, '.', BAR_CELLS);
  memset(bar, '#', (size_t)cells);
  bar[BAR_CELLS] = 0;
  fprintf(stderr, "\r\033[K[%s] ", bar);
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
  if (bar) draw_bar(share);
  fprintf(stderr, "%s%3.0f%%  %s: %llu candidates, %llu evaluated%s",
          bar ? "" : "penstock-plan: ", 100 * share, what, (unsigned long long)candidates,
          (unsigned long long)evaluated, bar ? "" : "\n");
}

void pen_plan_progress_end(void) {
  if (is_shown) fprintf(stderr, "\r\033[K");
  is_shown = false;
}
