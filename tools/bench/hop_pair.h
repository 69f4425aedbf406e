/* hop_pair.h: our side of a message to and fro between two processes: for hop.c, which forks the
 * second one, and hop_mpi.c, where an MPI library started both. */
#ifndef PEN_HOP_PAIR_H
#define PEN_HOP_PAIR_H

#include "tools/bench/transport_plan.h"

/* How long a rank spins before it sleeps. */
enum { HOP_SPIN_NS = 100000 };

/* The message that goes and the one that comes back, in arenas of target and source, with no
 * credits: after two_ranks_plan(). hop_set_bytes() makes them smaller than `bytes`. */
void hop_use_one_message(struct two_ranks *two, uint64_t bytes);
void hop_set_bytes(struct two_ranks *two, uint64_t bytes);

/* Opens rank r's end and fills what it sends; in both ranks. `address`: where the other rank
 * reaches this one, for ofi; else null. */
struct pen_transport *hop_open_end(struct two_ranks *two, uint32_t r, const char *address);

/* Rank 1 echoes what comes; rank 0 calls, and fills times_ns with the round trips after the first
 * `warm` ones. Both read every cache line of what comes. */
void hop_echo(struct pen_transport *end, uint64_t rounds, uint64_t bytes);
void hop_call(struct pen_transport *end, uint64_t warm, uint64_t rounds, uint64_t bytes,
              uint64_t *times_ns);

#endif
