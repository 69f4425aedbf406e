/* redistribute.h: train --recover-every, when a fallback is taken: the copies of states in memory,
 * which were made with the plan before, become copies for the ranks of the new one
 * (storage/memory_convert.h). Tensor by tensor, over the connections of the commands to the one
 * that serves, which forwards each to the commands whose ranks need it.
 *
 *     the server                                      a command
 *       WANT rank                              --->     with copies of that rank
 *                                              <---     CURSOR, PART of each tensor
 *       PART                                   --->     with ranks that need it
 *       DONE cursor                            --->   */
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

/* On the server; `offers`: of this command, then of each peer. Fails (75) where a command ends. */
void pen_redistribute_serve(const struct pen_redistribution *states, struct pen_peers *peers,
                            const struct pen_start_offer *offers);

/* In each other command that has ranks now or had before. Fails (75) where the server ends. */
void pen_redistribute_join(const struct pen_redistribution *states,
                           struct pen_control_link *server);

#endif
