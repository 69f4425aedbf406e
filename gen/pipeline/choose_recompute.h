/* choose_recompute.h: memory.recompute = "auto": what each stage recomputes, within
 * memory.limit_mib. */
#ifndef PEN_CHOOSE_RECOMPUTE_H
#define PEN_CHOOSE_RECOMPUTE_H

#include "gen/joint/joint.h"
#include "gen/pipeline/options.h"
#include "gen/pipeline/output.h"
#include "gen/topology/topology.h"

/* The passes up to layout: the plan of a topology without "auto"; `measured` (null: none): the
 * costs, `choice` (null: none): the cut and the order instead of the topology's. */
typedef struct pen_result pen_lay_out(const struct pen_topology *topology,
                                      const struct pen_generator_options *options,
                                      const struct pen_measured *measured,
                                      const struct pen_joint_choice *choice);

/* The plan of the topology with a choice in place of each "auto". Without a limit nothing is
 * recomputed. If no choice is within the limit, the one that recomputes most. */
struct pen_result pen_choose_recompute(const struct pen_topology *topology,
                                       const struct pen_generator_options *options,
                                       const struct pen_measured *measured, pen_lay_out *lay_out);

#endif
