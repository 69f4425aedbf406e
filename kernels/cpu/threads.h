/* threads.h: divides a kernel's work over the threads of the rank (cluster.threads_per_rank).
 *
 * A kernel divides its output into tiles, which depend on its shape alone. Each thread computes
 * whole tiles, so the bits do not depend on the number of threads. The threads are an OpenMP team
 * that lives as long as the rank (pen_threads_open() in kernels.h); a thread that waits for work
 * spins for some milliseconds, then sleeps. With one thread a division is a call of the function.
 *
 * Only the thread that opened the team divides its work. Within a tile, and in other threads of the
 * process, a division is computed by the caller alone. */
#ifndef PEN_THREADS_H
#define PEN_THREADS_H

#include "kernels/kernels.h"

/* Computes tiles first .. past - 1. `thread`, from 0, selects what each thread has of its own, such
 * as a part of the workspace. */
typedef void pen_tiles(const void *context, size_t thread, size_t first, size_t past);

/* Calls `run` in each thread with an equal share of `count` tiles; shares are runs of tiles. */
void pen_parallel_for(size_t count, pen_tiles *run, const void *context);

/* The same for `rows` rows of `width` elements, with row numbers for tiles; so many rows at a time
 * that a small array is not divided. */
void pen_parallel_rows(size_t rows, size_t width, pen_tiles *run, const void *context);

#endif
