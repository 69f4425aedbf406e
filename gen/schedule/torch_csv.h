/* torch_csv.h: compute orders as the compute-only CSV of torch.distributed.pipelining. */
#ifndef PEN_TORCH_CSV_H
#define PEN_TORCH_CSV_H

#include <stdio.h>

#include "gen/partition/partition.h"
#include "gen/schedule/order.h"

/* Writes one row a rank, each ended by a line feed. pen_csv_read() reads it back to the same
 * order. */
void pen_csv_print(FILE *out, const struct pen_order *order);

/* An order from a file, and the columns of its actions, for messages. */
struct pen_csv {
  const char *path;
  struct pen_order *order;
  uint32_t **column; /* [rank][action]: from 1 */
};

/* Reads an order, and checks that every stage and microbatch has its F and its B (or I and W; or no
 * backward at all, for an order of forwards) on the rank of the stage. Fails (65) with file, row
 * and column, both from 1. `placement` is the partition's, for messages. */
struct pen_csv *pen_csv_read(const char *path, const char *text, size_t bytes,
                             const struct pen_partition *partition, const char *placement);

/* Fails (65) for an order that cannot finish: each rank can run only its first done[rank] actions.
 * The message names an action that waits and what it needs. */
_Noreturn void pen_csv_fail_deadlock(const struct pen_csv *csv,
                                     const struct pen_partition *partition, const uint32_t *done);

#endif
