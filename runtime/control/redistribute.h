/* redistribute.h: train --recover-every, when a fallback is taken: the copies of states in memory,
 * which were made with the plan before, become copies for the ranks of the new one
 * (storage/memory_convert.h). Tensor by tensor, over the connections of the commands to the one
 * that serves, which forwards each to the commands whose ranks need it.
 *
 *     the server                                      a command
 *       WANT rank                              --->     with copies of that rank
 *                                              <---     POSITION, PART of each tensor
 *       PART                                   --->     with ranks that need it
 *       DONE position                          --->
 *                                              <---     DONE
 *       DONE                                   --->     when all have said so: nobody needs the
 *                                                       copies of the plan before any more
 *
 * Between parts the server sends heartbeats. Where a command is lost meanwhile, no copy is made,
 * and all keep those of the plan before. */
#ifndef PEN_REDISTRIBUTE_H
#define PEN_REDISTRIBUTE_H

#include "runtime/control/rendezvous.h"
#include "runtime/control/start_state.h"
#include "runtime/storage/memory_checkpoint.h"

/* What a command has and needs. */
struct pen_redistribution {
  const struct pen_plan *from; /* the plan before */
  uint64_t step;               /* whose copies all ranks of `from` have somewhere */
  const struct pen_memory_checkpoints *own, *mirrored; /* of `from`; they may be empty */
  const struct pen_memory_checkpoints *to;             /* of the new plan; it gets the step */
};

/* On the server; `offers`: of this command, then of each peer. Null: all commands have their
 * copies; else the one that is lost, with errno as pen_control_link_receive(). */
struct pen_peer_command *pen_redistribute_serve(const struct pen_redistribution *states,
                                                struct pen_peers *peers,
                                                const struct pen_start_offer *offers);

enum pen_redistribute_end {
  PEN_REDISTRIBUTE_DONE,
  PEN_REDISTRIBUTE_LOST,  /* the server is, with errno as above */
  PEN_REDISTRIBUTE_ENDED, /* the server has ended it: *message is the header of what it sent */
};

/* In each other command that has ranks now or had before. */
enum pen_redistribute_end pen_redistribute_join(const struct pen_redistribution *states,
                                                struct pen_control_link *server,
                                                struct pen_control_message *message);

#endif
