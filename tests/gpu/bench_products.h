/* bench_products.h: of matrix products bench.c measures which algorithm the library chooses, and
 * how the rate falls when the chip is busy. */
#ifndef PEN_TESTS_GPU_BENCH_PRODUCTS_H
#define PEN_TESTS_GPU_BENCH_PRODUCTS_H

#include "tests/gpu/bench_time.h"

/* The second line of a product's row: the time of the algorithm that is used, the first of the
 * heuristic, and of the fastest of up to eight; of each its tile, stages (elements of k x buffers),
 * pieces of k, and waves (blocks for each place on the GPU). */
void print_algorithms(struct calls *product, void *stream, double window_us);

/* The row `sustained`: TFLOP/s of the first and of the last of `batches` successive batches of
 * calls of about `batch_s` seconds each. */
void print_sustained(const char *shape, struct calls *product, void *stream, double operations,
                     double batch_s, int batches);

#endif
