/* control_start.h: what the commands agree on before their ranks start, over the connections of
 * control_tcp.h. */
#ifndef PEN_CONTROL_START_H
#define PEN_CONTROL_START_H

#include <stdbool.h>

#include "runtime/control/control_tcp.h"
#include "runtime/control/start_state.h"

/* What the ranks start from, by what this command and all others with ranks, now or before, offer:
 * all get the same. Call before the ranks start. False: a command is lost, which is reported, and
 * the run is aborted (75): the ranks are not started, and the others are told once the thread runs.
 */
bool pen_control_tcp_agree(struct pen_control_tcp *tcp, const struct pen_start_offer *offer,
                           struct pen_start_state *state);

/* After that, where the states in memory are those of another plan: makes states of the ranks of
 * this one (redistribute.h). Nothing for a command that has no ranks and had none. False: as above.
 */
struct pen_redistribution;
bool pen_control_tcp_redistribute(struct pen_control_tcp *tcp,
                                  const struct pen_redistribution *states, bool takes_part);

#endif
