/* bench_time.h: how bench.c measures and prints: the choice of rows, times on the GPU, rates. */
#ifndef PEN_TESTS_GPU_BENCH_TIME_H
#define PEN_TESTS_GPU_BENCH_TIME_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"

enum { SETS_MAX = 16, BATCHES_MAX = 400 };
enum { WINDOW_US = 60000 }; /* of a measurement: of its launches */

/* Calls of one kernel with operands that alternate among `count` sets. */
struct calls {
  pen_kernel *kernel;
  struct pen_call call[SETS_MAX];
  int count;
};

typedef void work(void *context, int turn); /* enqueues on the stream */
void call_once(void *calls, int turn);      /* a work: one of the calls */

/* Prints a TAP failure with the device's error, and ends the program. */
void give_up(const char *what);

/* Rows are chosen by words of which their "name shape" contains one, whatever the case; without
 * words all are. */
void choose_rows(char *const *words, int count);
bool is_chosen(const char *name, const char *shape);
bool any_chosen(void); /* so far */

/* Median seconds of one call, of those that take `window_us`, at least five, after two others. They
 * follow each other without a pause, so that what the host takes for a call does not count. */
double seconds_of(work *do_work, void *context, void *stream, double window_us);
/* Seconds of each of `batches`, at most BATCHES_MAX, of `count` calls, one after the other. */
void batch_seconds(work *do_work, void *context, void *stream, int count, int batches,
                   double *seconds);

/* The rate of copies to which others relate: bytes a second, read and written. */
void note_copy_rate(double rate);
/* A row: microseconds; GB/s and share of the copy's rate if there are bytes; TFLOP/s if there are
 * operations. */
void print_rate(const char *name, const char *shape, double seconds, double bytes,
                double operations);

#endif
