/* arrivals.h: the peers of the command that serves (rendezvous.h): a command is one when it has
 * proved itself, and has come when it has sent PLACE. Nothing here waits, so that none that is
 * stopped in between holds up the others. */
#ifndef PEN_ARRIVALS_H
#define PEN_ARRIVALS_H

#include "runtime/control/rendezvous.h"

/* Whether there is a place for another peer; and adds one. */
bool pen_arrivals_have_room(const struct pen_peers *peers);
void pen_arrivals_add(struct pen_peers *peers, const struct pen_peer_command *peer);

/* Takes the first message of a peer that arrives. 1: it has come; 0: not yet; -1, with errno: it
 * does not come. */
int pen_arrivals_take(struct pen_peer_command *peer);

/* Before the ranks start, of all peers that arrive. One that says nothing in time, or ends, counts
 * as one that has come and is lost if it has ranks or states, and else is removed. */
void pen_arrivals_take_all(const struct pen_control_config *config, struct pen_peers *peers);

#endif
