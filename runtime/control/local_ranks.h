/* local_ranks.h: which ranks of a deployment this command starts, and the port of the first host.
 */
#ifndef PEN_LOCAL_RANKS_H
#define PEN_LOCAL_RANKS_H

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rank_set.h"

/* Plan of one host: all ranks; a launcher that starts several commands is refused (64). Plan of
 * several hosts: the ranks of --host; else the rank of --rank; else as a launcher says by the
 * variables of its rank and of its number of commands: as many as the plan has ranks, one rank
 * each; as many as hosts, spares included, or one or unknown, the ranks of the host that has this
 * host's name, with or without its domain. If both numbers are equal, the latter where the launcher
 * says that each host has one command. Fails (64) on a rank or host that the plan does not have,
 * and on any other number of commands. */
struct pen_rank_set pen_local_ranks_of(const struct pen_plan *plan,
                                       const struct pen_options *options);

/* The port of the first host, to which the other commands connect: MASTER_PORT, else that of the
 * plan. Fails (64) where MASTER_PORT is no port. */
uint16_t pen_first_port(const struct pen_plan *plan);

#endif
