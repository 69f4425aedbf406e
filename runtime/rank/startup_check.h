/* start.h: what the ranks of a deployment must start from alike, where several commands have
 * started them: the checkpoint, and what their options say of steps. Ranks of one command have it
 * from their parent. */
#ifndef PEN_STARTUP_CHECK_H
#define PEN_STARTUP_CHECK_H

#include "runtime/rank/run.h"
#include "runtime/comm/endpoint.h"

/* Says in the rank's state what it starts from. Before the barrier of pen_endpoint_compare_plans().
 * May allocate. */
void pen_startup_publish(const struct pen_run *run, struct pen_rank_state *self);

/* Behind it: fails where another rank has said otherwise, and says which ranks and what:
 * PEN_EXIT_DATA where checkpoints differ, PEN_EXIT_USAGE where options do. */
void pen_startup_check(const struct pen_run *run, const struct pen_endpoint *endpoint);

#endif
