/* progress.c: shows on a terminal how much of the inputs was read. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/progress_bar.h"
#include "tools/tokens/tokens.h"

static const double show_seconds = 0.1;

static struct {
  bool shown;
  uint64_t read_bytes, known_bytes; /* of all inputs; known 0: unknown */
  double start_seconds, shown_seconds;
} progress;

double tokens_now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void show_progress(double now) {
  const double seconds = now - progress.start_seconds, read = (double)progress.read_bytes,
               share = progress.known_bytes ? read / (double)progress.known_bytes : -1;
  char left[32] = "";
  if (share > 0) {
    snprintf(left, sizeof left, "  %.0f s left", seconds / share * (1 - (share < 1 ? share : 1)));
  }
  pen_progress_bar_show(share, "%.1f MB  %.1f MB/s%s", read * 1e-6,
                        seconds > 0 ? read * 1e-6 / seconds : 0, left);
}

void tokens_count_read(size_t bytes) {
  progress.read_bytes += bytes;
  double now = progress.shown ? tokens_now_seconds() : 0;
  if (progress.shown && now - progress.shown_seconds >= show_seconds) {
    progress.shown_seconds = now;
    show_progress(now);
  }
}

void tokens_progress_begin(bool quiet, uint64_t known_bytes) {
  progress.shown = !quiet && isatty(STDERR_FILENO);
  progress.known_bytes = known_bytes;
  progress.start_seconds = tokens_now_seconds();
}

uint64_t tokens_progress_end(void) {
  if (progress.shown) {
    pen_progress_bar_clear();
  }
  return progress.read_bytes;
}
