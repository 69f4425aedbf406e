/* bench_time.c: see bench_time.h. */
#define _GNU_SOURCE
#include "tests/gpu/bench_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 120 };

static char *const *words;
static int word_count;
static bool chosen;
static double copy_rate;

void give_up(const char *what) {
  printf("Bail out! %s: %s\n", what, pen_cuda.error() == NULL ? "an error" : pen_cuda.error());
  exit(1);
}

void choose_rows(char *const *of, int count) { words = of, word_count = count; }

bool is_chosen(const char *name, const char *shape) {
  char text[TEXT_MAX];
  snprintf(text, sizeof text, "%s %s", name, shape);
  bool found = word_count == 0;
  for (int i = 0; i < word_count; i++) found = found || strcasestr(text, words[i]) != NULL;
  chosen = chosen || found;
  return found;
}

bool any_chosen(void) { return chosen; }

void call_once(void *calls, int turn) {
  const struct calls *c = calls;
  c->kernel(&c->call[turn % c->count]);
}

static cudaEvent_t event(int number) {
  static cudaEvent_t events[BATCHES_MAX + 1];
  if (events[number] == NULL && cudaEventCreate(&events[number]) != cudaSuccess) give_up("events");
  return events[number];
}

/* Seconds between two events, the second of which has been recorded. */
static double seconds_between(int before, int after) {
  float ms = 0;
  if (cudaEventSynchronize(event(after)) != cudaSuccess ||
      cudaEventElapsedTime(&ms, event(before), event(after)) != cudaSuccess ||
      pen_cuda.error() != NULL)
    give_up("a measurement");
  return ms * 1e-3;
}

static int rising(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void batch_seconds(work *do_work, void *context, void *stream, int count, int batches,
                   double *seconds) {
  cudaEventRecord(event(0), stream);
  for (int n = 0; n < batches * count; n++) {
    do_work(context, n);
    if ((n + 1) % count == 0) cudaEventRecord(event((n + 1) / count), stream);
  }
  for (int b = batches - 1; b >= 0; b--) seconds[b] = seconds_between(b, b + 1);
}

double seconds_of(work *do_work, void *context, void *stream, double window_us) {
  enum { WARM = 2, FEWEST = 5 };
  static double times[BATCHES_MAX];
  batch_seconds(do_work, context, stream, 1, WARM, times);
  const double fit = window_us * 1e-6 / times[WARM - 1];
  const int count = fit < FEWEST ? FEWEST : fit < BATCHES_MAX ? (int)fit : BATCHES_MAX;
  batch_seconds(do_work, context, stream, 1, count, times);
  qsort(times, (size_t)count, sizeof *times, rising);
  return times[count / 2];
}

void note_copy_rate(double rate) { copy_rate = rate; }

void print_rate(const char *name, const char *shape, double seconds, double bytes,
                double operations) {
  printf("%-22s %-32s %10.1f us", name, shape, seconds * 1e6);
  if (bytes > 0) printf("  %7.1f GB/s", bytes / seconds * 1e-9);
  if (bytes > 0 && copy_rate > 0) printf("  %5.1f%% of copy", 100 * bytes / seconds / copy_rate);
  if (operations > 0) printf("  %7.1f TFLOP/s", operations / seconds * 1e-12);
  printf("\n");
  fflush(stdout);
}
