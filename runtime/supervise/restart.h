/* restart.h: train --restarts: what the command of a host does between the loss of ranks and the
 * start of new ones. */
#ifndef PEN_RESTART_H
#define PEN_RESTART_H

#include <stdbool.h>

#include "runtime/control/control_tcp.h"
#include "runtime/control/start_state.h"
#include "runtime/rank/run.h"

/* Before the first start: reserves the memory of --recover-every. */
void pen_restart_open(struct pen_run *run);
void pen_restart_close(struct pen_run *run);

/* Whether a run that has ended with `status` starts its ranks again: ranks were lost, the other
 * hosts can continue, restarts are left, and its end was not requested. Keeps what the next attempt
 * needs of the shared memory. */
bool pen_restart_prepare(struct pen_run *run, int status);

/* Whether a run that has ended with `status`, for its data, has states in memory to save, by ranks
 * that are started for that alone (run->saves_only); prepares that. */
bool pen_restart_prepare_save(struct pen_run *run, int status);

/* After the commands have connected: what they have agreed to run, the plan or one of its
 * fallbacks. Names the hosts that the server has given up. */
void pen_restart_take_plan(struct pen_run *run);

/* And the shared memory is made: where this one has other ranks than before, prepares what the
 * command needs for them. Fails (73) where a folder for checkpoints cannot be marked. */
void pen_restart_take_place(struct pen_run *run);

/* Agrees with the other commands on the state to start from; where it is one in memory of another
 * plan, makes that of this one. False: a command is lost, as of pen_control_tcp_agree(). Fails with
 * the status of a command that has failed. */
bool pen_restart_agree(struct pen_run *run, struct pen_control_tcp *tcp,
                       struct pen_start_state *state);

/* Whether each host's copies of --recover-every are also on the next host. */
bool pen_restart_mirrors(const struct pen_run *run);

/* The step whose state the next host has to give to this command; 0: none. */
uint64_t pen_restart_wanted_step(const struct pen_run *run, const struct pen_start_state *state);

/* Sets from where the ranks start, after all commands have agreed on the state. */
void pen_restart_apply(struct pen_run *run, const struct pen_start_state *state);

#endif
