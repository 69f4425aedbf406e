/* progress.c: shows on a terminal how much of the inputs was read. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/tokens/tokens.h"

enum { BAR_CELLS = 30 };
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
  double seconds = now - progress.start_seconds;
  char bar[BAR_CELLS + 1];
  double share =
      progress.known_bytes ? (double)progress.read_bytes / (double)progress.known_bytes : 0;
  int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
  memset(bar, '.', BAR_CELLS);
  memset(bar, '#', (size_t)cells);
  bar[BAR_CELLS] = 0;
  fprintf(stderr, "\r\033[K");
  if (progress.known_bytes) {
    fprintf(stderr, "[%s] %3.0f%%  ", bar, 100 * (share < 1 ? share : 1));
  }
  fprintf(stderr, "%.1f MB  %.1f MB/s", (double)progress.read_bytes * 1e-6,
          seconds > 0 ? (double)progress.read_bytes * 1e-6 / seconds : 0);
  if (progress.known_bytes && share > 0) {
    fprintf(stderr, "  %.0f s left", seconds / share * (1 - (share < 1 ? share : 1)));
  }
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
    fprintf(stderr, "\r\033[K");
  }
  return progress.read_bytes;
}
