/* comm.h: how the processes of a run reach each other. It includes nothing and no file includes it.
 *
 *   transport.h        messages of actions and collectives between replicas: one interface, which
 *                      shm.h, ofi.h (over fabric.h), ipc.h and nccl.h implement
 *   endpoint.h         barriers and the statistics of a step, the same for all transports
 *   shared_control.h   the memory that the ranks of one command share, words by shared_control.def
 *   control_tcp.h      keeps that memory equal on several hosts (control_sync.h)
 *   local_ranks.h      which ranks a command starts
 *   rendezvous.h       connects the commands, and who has which ranks after a loss (membership.h)
 *   mirror.h           copies of states on the next host
 *   redistribute.h     the same copies for the ranks of a fallback
 *   arena.h            the memory of a rank
 *   step_stats.h       loss and norm from the statistics
 *   failure_text.h     the line that reports a lost rank
 *
 * In: a plan, the ranks of this command, arenas. Out: bytes in the arenas of other ranks, counters
 * that rise, or an aborted run. */
#ifndef PEN_COMM_H
#define PEN_COMM_H
#endif
