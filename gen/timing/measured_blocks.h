/* measured_blocks.h: measured costs of the blocks of a model: files of version 2. */
#ifndef PEN_MEASURED_BLOCKS_H
#define PEN_MEASURED_BLOCKS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/measured_cost.h"

struct json_t;

/* Fills the costs of each stage from those of its blocks. Fails (65) where the file is wrong, or
 * has no block of that kind with the topology's microbatch, sequence, dtype, device and weights. */
void pen_measured_blocks_read(struct pen_measured *measured, const struct json_t *root,
                              const struct pen_partition *partition,
                              struct pen_graph *const *graph);

#endif
