/* measured_cost.h: a file of costs that were measured on a machine (--costs), which replace those
 * of the topology: of the stages of a deployment (penstock-NAME train --measure FILE: version 1),
 * or of the blocks of a model (penstock-NAME measure: version 2), for any cut, schedule and
 * microbatch that were measured. */
#ifndef PEN_MEASURED_COST_H
#define PEN_MEASURED_COST_H

#include "gen/timing/measured_blocks.h"
#include "gen/timing/measured_links.h"
#include "gen/timing/measured_stages.h"
#include "gen/topology/topology.h"

/* Times are in milliseconds. */
struct pen_measured {
  const char *path;
  uint32_t version;
  double overlap; /* the cost of a pair a|b; below 0: not in the file, and it is the sum */
  const struct pen_measured_stages *stages; /* of version 1; else NULL */
  /* Of version 2; else NULL and 0. */
  const struct pen_measured_blocks *blocks;
  const struct pen_measured_links *links;
  const char *device, *dtype;
  uint64_t sequence;
  double update_element, norm_element; /* what an element takes in UPDATE, and in NORM */
};

/* Reads the file once, for any cut. Of version 1, a backward that was measured whole is divided in
 * proportion to the stage's flops; one that was measured whole and split also gives the cost of the
 * work that I and W both do. Fails: 66 absent, 65 with `FILE:LINE: reason` if it is not JSON, else
 * with `FILE: stages[2].forward: what is allowed`. */
struct pen_measured *pen_measured_read(const char *path);

/* Fails (65) if version 2 was measured with another device, dtype or sequence than the topology's.
 * What else must agree is checked with the stages. */
void pen_measured_check(const struct pen_measured *measured, const struct pen_topology *topology);

#endif
