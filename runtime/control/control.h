/* control.h: what the commands of a run do with each other: there is one on each host, or one a
 * rank, and each starts its own ranks. No message between ranks goes here. It includes nothing and
 * no file includes it.
 *
 *   local_ranks.h      which ranks a command starts
 *   membership.h       which host has which ranks, and which are lost
 *   rendezvous.h       connects the commands, before the start and again after a loss
 *   arrivals.h         who has proved itself, but has not come
 *   control_accept.h, control_connect.h, control_link.h   both ends of a connection, and its frames
 *   handshake.h        the proofs with which a connection begins, under the run's secret
 *   listen_address.h   where the others reach this host
 *   control_tcp.h      keeps the shared memory (comm/shared_control.h) equal on all hosts: a thread
 *                      of the command, with the messages of control_sync.h; control_start.h is
 *                      what the commands agree on before their ranks start
 *   lost_hosts.h       detects and reports that the command of another host is lost
 *   failure_report.h   each lost rank is reported once by each command
 *   start_state.h      from which state the ranks start again, by what all commands have
 *   mirror.h           copies of states on the next host
 *   redistribute.h     the same copies for the ranks of a fallback
 *
 * In: a plan, the options and the secret, the shared memory, copies of states. Out: the same shared
 * memory and the same copies on all hosts, who has which ranks, or an aborted run. Of runtime/comm/
 * this folder uses only the shared memory, and the statistics and failures in it: no transport. */
#ifndef PEN_CONTROL_H
#define PEN_CONTROL_H
#endif
