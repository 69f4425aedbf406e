/* comm.h: how the ranks of a run reach each other, and the memory that those of one command share
 * with it. It includes nothing and no file includes it.
 *
 *   transport.h        messages of actions and collectives between replicas: one interface, which
 *                      shm.h, ofi.h (over fabric.h), ipc.h and nccl.h implement
 *   endpoint.h         barriers and the statistics of a step, the same for all transports
 *   shared_control.h   the shared memory, words by shared_control.def
 *   arena.h            the memory of a rank
 *   step_stats.h       loss and norm from the statistics
 *   step_timing.h      how long a rank took in a step
 *   failure_text.h     the line that reports a lost rank, from the shared memory
 *
 * In: a plan, the ranks of this command, arenas. Out: bytes in the arenas of other ranks, counters
 * that rise, or an aborted run. With several hosts runtime/control/ keeps the shared memory equal
 * on all of them; nothing here depends on it. */
#ifndef PEN_COMM_H
#define PEN_COMM_H
#endif
