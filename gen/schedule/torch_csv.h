/* csv.h: compute orders as PyTorch's compute-only CSV. */
#ifndef PEN_CSV_H
#define PEN_CSV_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"

/* One row a rank, each ended by a line feed. pen_csv_read() takes it back to the same order. */
void pen_csv_print(FILE *out, const struct pen_order *order);

/* Reads, and checks that every stage and microbatch has its F and its B (or I and W; no backward at
 * all is an order of forwards) on the rank of the stage, and that the rows together run to their
 * end. Fails (65) with file, row and column, both from 1. `placement` is what the message calls the
 * partition's. */
struct pen_order *pen_csv_read(const char *path, const char *text, size_t bytes,
                               const struct pen_partition *partition, const char *placement);

#endif
