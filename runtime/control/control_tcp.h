/* control_tcp.h: keeps the memory of comm/shared_control.h equal on all hosts of a deployment
 * (control_sync.h), over one TCP connection between the command of each host and the one that
 * serves (rendezvous.h), which forwards messages. Messages between ranks do not go here. Waiting,
 * and all that uses the shared memory, is the same as on one host. */
#ifndef PEN_CONTROL_TCP_H
#define PEN_CONTROL_TCP_H

#include "runtime/comm/shared_control.h"
#include "runtime/control/control_connect.h"

/* A host that has sent nothing for so long is lost: its processes are stopped. A link that is cut
 * is detected sooner. */
static inline double pen_silence_s(double timeout_s) { return timeout_s > 3 ? timeout_s : 3; }

struct pen_control_tcp;

/* Connects the commands, and returns when all ranks of the plan have one; null if the plan has one
 * host. Sets config->membership's plan, for which the shared memory is made. Fails as
 * pen_rendezvous(). Call before the ranks start. Allocates. */
struct pen_control_tcp *pen_control_tcp_open(const struct pen_control_config *config,
                                             double timeout_s);

/* Uses this memory. Sets shared->address, and shared->local: the ranks of this command, none for a
 * spare. Null is allowed, as below. Allocates. */
void pen_control_tcp_attach(struct pen_control_tcp *tcp, struct pen_shared *shared);

/* While the thread runs: reports that the host that has a place (membership.h) is not reached, and
 * aborts the run. */
void pen_control_tcp_lose(struct pen_control_tcp *tcp, uint32_t place);

/* Where the host before connects to (mirror.h). */
struct pen_control_server *pen_control_tcp_mirror(struct pen_control_tcp *tcp);

/* In a rank's process: closes the sockets, which are the command's. */
void pen_control_tcp_leave(struct pen_control_tcp *tcp);

/* Starts the thread that sends and receives. */
void pen_control_tcp_start(struct pen_control_tcp *tcp);

/* Call when the local ranks have exited: sends GOODBYE, waits up to 5 s for that of all hosts, and
 * ends the thread. */
void pen_control_tcp_close(struct pen_control_tcp *tcp);

#endif
