/* cuts.h: the cuts of the model, each for all pipelines that have it. */
#ifndef PEN_CUTS_H
#define PEN_CUTS_H

#include "gen/base/error.h"
#include "gen/planner/cut.h"
#include "gen/planner/planner.h"

struct pen_cuts;

struct pen_cuts *pen_cuts_new(const struct pen_planner *planner);

/* The cut of a pipeline. `without_recomputation`: as if it had none, if that is allowed; the cut is
 * the same unless it is balanced by time. */
const struct pen_cut *pen_cut_of(struct pen_cuts *cuts, const struct pen_choice *pipeline,
                                 bool without_recomputation);

/* Whether both have the same stages. */
bool pen_cut_is_kept(const struct pen_cuts *cuts, const struct pen_choice *pipeline);

/* What refused the last cut that is not valid. */
const struct pen_refusal *pen_cuts_refusal(const struct pen_cuts *cuts);

#endif
