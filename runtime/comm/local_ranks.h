/* local_ranks.h: which ranks of a deployment this command starts, and where the first host is. */
#ifndef PEN_LOCAL_RANKS_H
#define PEN_LOCAL_RANKS_H

#include "runtime/base/options.h"
#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Plan of one host: all ranks. Plan of several hosts: the ranks of --host; else the rank of --rank;
 * else as a launcher says by the variables of its rank and of its number of commands: as many as
 * the plan has ranks, one rank each; as many as hosts, or one or unknown, the ranks of the host
 * that has this host's name, with or without its domain. Fails (64) on a rank or host that the plan
 * does not have, and on any other number of commands. */
struct pen_rank_set pen_local_ranks_of(const struct pen_plan *plan,
                                       const struct pen_options *options);

/* Address and port of the first host, that of rank 0, to which the other commands connect:
 * MASTER_ADDR and MASTER_PORT, else those of the plan. Fails (64) where MASTER_PORT is no port. */
const char *pen_first_host(const struct pen_plan *plan);
uint16_t pen_first_port(const struct pen_plan *plan);

#endif
