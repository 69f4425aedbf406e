/* measured_blocks.h: measured costs of the blocks of a model. */
#ifndef PEN_MEASURED_BLOCKS_H
#define PEN_MEASURED_BLOCKS_H

#include "gen/model/graph.h"
#include "gen/timing/timing.h"

struct json_t;

/* The list "blocks" of a file. */
struct pen_measured_blocks;

/* Fails (65) where the list is wrong; `path`: the file, for messages. */
struct pen_measured_blocks *pen_measured_blocks_read(const char *path, const struct json_t *blocks);

/* Whether blocks were measured with so many tensor ranks, and pieces. */
bool pen_measured_blocks_have(const struct pen_measured_blocks *blocks, int64_t tensor_ranks,
                              int64_t pieces);

/* The cost of a stage, in ms: the sum over its blocks, without messages and exchanges. Fails (65)
 * if the file has no block of that kind with the topology's microbatch, tensor ranks, pieces and
 * weights. */
struct pen_stage_cost pen_measured_blocks_cost(const struct pen_measured_blocks *blocks,
                                               const struct pen_graph *graph);

#endif
