/* here.h: which of a deployment's processes are this host's, or this command's, to start. */
#ifndef PEN_LOCAL_RANKS_H
#define PEN_LOCAL_RANKS_H

#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"

/* Global ranks [first, first + count). */
struct pen_local_ranks {
  uint32_t first, count;
};

/* All of a plan for one host. Of one for several: the rank that --rank names, or else the first
 * that is set of SLURM_PROCID, PMIX_RANK, OMPI_COMM_WORLD_RANK, RANK; else those of the host whose
 * name in the plan is this one's, with or without its domain. Fails (64) where a number is none of
 * the plan's, or no name fits. */
struct pen_local_ranks pen_local_ranks_of(const struct pen_plan *plan,
                                          const struct pen_options *options);

#endif
