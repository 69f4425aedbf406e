/* awaited_collectives.h: which collectives of a step the peers wait for. All lists of actions are
 * equal, so each rank knows it from its own. */
#ifndef PEN_AWAITED_COLLECTIVES_H
#define PEN_AWAITED_COLLECTIVES_H

#include "runtime/comm/transport.h"

/* Sets awaited[n], [collective_count + 1], for each collective n that peers wait for and that is
 * later than those they have waited for. Returns how many the peers must have ended at a step's
 * end: see ipc.c. */
uint32_t pen_awaited_collectives(const struct pen_transport *transport, bool *awaited);

#endif
