/* progress.c: shows on a terminal how far the planner is. */
#include "gen/planner/progress.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 30 };
static const double show_seconds = 0.1;
static double shown_seconds;
static bool is_shown;

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void pen_plan_progress_show(const struct pen_planner *planner, const char *what, double share,
                            uint64_t candidates, uint64_t evaluated) {
  char bar[BAR_CELLS + 1];
  if (!planner->shows_progress) return;
  const double now = now_seconds();
  if (now - shown_seconds < show_seconds) return;
  shown_seconds = now;
  is_shown = true;
  const int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
  memset(bar, '.', BAR_CELLS);
  memset(bar, '#', (size_t)cells);
  bar[BAR_CELLS] = 0;
  fprintf(stderr, "\r\033[K[%s] %3.0f%%  %s: %llu candidates, %llu evaluated", bar, 100 * share,
          what, (unsigned long long)candidates, (unsigned long long)evaluated);
}

void pen_plan_progress_end(void) {
  if (is_shown) fprintf(stderr, "\r\033[K");
  is_shown = false;
}
