/* timed_ranks.h: a few processes of this machine that are ranks of a small plan, and what they
 * send each other: for the times of messages and exchanges. */
#ifndef PEN_TIMED_RANKS_H
#define PEN_TIMED_RANKS_H

#include <stdint.h>

#include "runtime/commands/block_times.h"
#include "runtime/comm/shared_control.h"
#include "runtime/comm/transport.h"

/* Memory of zeros that all processes share. */
void *pen_timed_memory(size_t bytes);

/* Runs `run` in `count` new processes, which are global ranks 0, 1, ..., on cores of their own if
 * there are enough, and waits for them. Fails like a run when one of them does. */
void pen_timed_ranks_run(uint32_t count, const struct pen_busy_cores *cores,
                         void (*run)(void *context, uint32_t rank), void *context);

/* In a process: opens the transport of its rank, which all do together. The arena is that of
 * shared->memory. */
struct pen_transport *pen_timed_transport_open(const struct pen_plan *plan,
                                               struct pen_shared *shared,
                                               struct pen_endpoint *endpoint, uint32_t rank);

/* A kernel that has made bytes, and one that reads them, as far as caches go. */
void pen_timed_write(unsigned char *to, uint64_t bytes, uint64_t round);
void pen_timed_read(const unsigned char *from, uint64_t bytes);

/* The lower quartile, in milliseconds, since another program may have a core meanwhile. Sorts. */
double pen_timed_quartile_ms(uint64_t *took_ns, size_t count);

#endif
