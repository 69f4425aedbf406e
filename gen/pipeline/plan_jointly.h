/* plan_jointly.h: the plan of a topology whose choices gen/joint/ makes. */
#ifndef PEN_PLAN_JOINTLY_H
#define PEN_PLAN_JOINTLY_H

#include "gen/pipeline/choose_recompute.h"
#include "gen/pipeline/options.h"
#include "gen/pipeline/output.h"
#include "gen/topology/topology.h"

/* The plan with the best choice found. Fails (78) with --actions. */
struct pen_result pen_plan_jointly(const struct pen_topology *topology,
                                   const struct pen_generator_options *options,
                                   const struct pen_measured *measured, pen_lay_out *lay_out);

#endif
