/* local_ranks.h: which ranks of a deployment this command starts. */
#ifndef PEN_LOCAL_RANKS_H
#define PEN_LOCAL_RANKS_H

#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Plan of one host: all ranks. Plan of several hosts: the rank that --rank names, else the first
 * that is set of SLURM_PROCID, PMIX_RANK, OMPI_COMM_WORLD_RANK, RANK; else the ranks of the host
 * whose name in the plan is that of this host, with or without its domain. Fails (64) on a rank
 * that the plan does not have, or if no host's name matches. */
struct pen_local_ranks pen_local_ranks_of(const struct pen_plan *plan,
                                          const struct pen_options *options);

#endif
