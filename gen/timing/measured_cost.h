/* measured_cost.h: a file of costs that were measured on a machine (--costs), which replace those
 * of the topology: of the blocks of a model, for any cut, schedule and microbatch that were
 * measured (penstock-NAME measure). */
#ifndef PEN_MEASURED_COST_H
#define PEN_MEASURED_COST_H

#include "gen/timing/measured_links.h"
#include "gen/topology/topology.h"

struct json_t;

/* The list "blocks" of a file. */
struct pen_measured_blocks;

/* Fails (65) where the list is wrong; `path`: the file, for messages. */
struct pen_measured_blocks *pen_measured_blocks_read(const char *path, const struct json_t *blocks);

/* Whether blocks were measured with so many tensor ranks, and splits. */
bool pen_measured_blocks_have(const struct pen_measured_blocks *blocks, int64_t tensor_ranks,
                              int64_t splits);

/* The cost of a stage, in ms: the sum over its blocks, without messages and exchanges. Fails (65)
 * if the file has no block of that kind with the topology's microbatch, tensor ranks, splits and
 * weights. */
struct pen_stage_cost pen_measured_blocks_cost(const struct pen_measured_blocks *blocks,
                                               const struct pen_graph *graph);

/* Times are in milliseconds. */
struct pen_measured {
  const char *path;
  double overlap; /* the cost of a pair a|b; below 0: not in the file, and it is the sum */
  const struct pen_measured_blocks *blocks;
  const struct pen_measured_links *links;
  const char *device, *dtype;
  uint64_t sequence;
  double update_element, norm_element; /* what an element takes in UPDATE, and in NORM */
  double peak_tflops;                  /* what a rank computes at most; 0: not in the file */
};

/* Reads the file once, for any cut. Fails: 66 absent, 65 with `FILE:LINE: reason` if it is not
 * JSON, 78 with `FILE:LINE: how to measure anew` if it is of version 1, which had costs of the
 * stages of one plan; else 65 with `FILE: blocks[2].forward: what is allowed`. */
struct pen_measured *pen_measured_read(const char *path);

/* Fails (65) if it was measured with another device, dtype or sequence than the topology's.
 * What else must agree is checked with the stages. */
void pen_measured_check(const struct pen_measured *measured, const struct pen_topology *topology);

#endif
