/* plan_header.h: the fields of the plan that follow from the settings. */
#ifndef PEN_PLAN_HEADER_H
#define PEN_PLAN_HEADER_H

#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"

struct pen_plan *pen_plan_header(const struct pen_topology *topology,
                                 const struct pen_partition *partition);

#endif
