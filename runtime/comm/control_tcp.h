/* wire.h: keeps the memory of control.h alike on all hosts of a deployment: what ranks tell of
 * themselves, boards, checksums of checkpoints, and the run's few words. Messages between ranks do
 * not go here.
 *
 * Every word there has one writer, or only ever leaves zero, so that each host sends what its own
 * ranks wrote and takes what others send; data before the flags that let others read them, over one
 * TCP connection between each host's command and the first's, which passes on what it gets.
 * Waiting, and everything above, is what it is on one host. */
#ifndef PEN_WIRE_H
#define PEN_WIRE_H

#include "runtime/comm/shared_control.h"
#include "runtime/comm/local_ranks.h"

struct pen_control_tcp;

/* Meets the other commands at the plan's first host and port, and returns when all ranks of the
 * plan have one; null for a plan of one host, or when all ranks are here. Fails (75) when somebody
 * does not come within `patience_s`. Allocates. Before any rank exists. */
struct pen_control_tcp *pen_control_tcp_open(const struct pen_plan *plan,
                                             const struct pen_shared *shared,
                                             struct pen_local_ranks here, double patience_s);

/* In a rank's process: closes what is the command's. */
void pen_control_tcp_leave(struct pen_control_tcp *wire);

/* Starts the thread that sends and takes, when the ranks have been started. */
void pen_control_tcp_start(struct pen_control_tcp *wire);

/* When the own ranks have left: tells the others, waits until all is passed on, and ends the
 * thread. */
void pen_control_tcp_close(struct pen_control_tcp *wire);

#endif
