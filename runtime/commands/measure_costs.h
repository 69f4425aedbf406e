/* measure_costs.h: the command measure: what the blocks of the model, the optimizer and messages
 * cost on this machine, for penstock-gen --costs. */
#ifndef PEN_MEASURE_COSTS_H
#define PEN_MEASURE_COSTS_H

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"

/* Runs the plans of plan->measured and writes --output. Returns 0, or fails. */
int pen_measure_costs(const struct pen_plan *plan, const struct pen_options *options);

#endif
