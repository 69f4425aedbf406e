/* choose_recompute.h: memory.recompute = "auto": what each stage recomputes, within
 * memory.limit_mib. */
#ifndef PEN_CHOOSE_RECOMPUTE_H
#define PEN_CHOOSE_RECOMPUTE_H

#include "gen/options.h"
#include "gen/output.h"
#include "gen/topology/topology.h"

/* The passes up to layout: the plan of a topology without "auto". */
typedef struct pen_result pen_lay_out(const struct pen_topology *topology,
                                      const struct pen_generator_options *options);

/* The plan of the topology with a choice in place of each "auto". Without a limit nothing is
 * recomputed. If no choice is within the limit, the one that recomputes most. */
struct pen_result pen_choose_recompute(const struct pen_topology *topology,
                                       const struct pen_generator_options *options,
                                       pen_lay_out *lay_out);

#endif
