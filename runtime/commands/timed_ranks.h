/* timed_ranks.h: a few processes of this machine that are ranks of a small plan, their cores and
 * what they share: for the times of blocks, messages and exchanges, and for tools/bench. */
#ifndef PEN_TIMED_RANKS_H
#define PEN_TIMED_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/comm/transport.h"
#include "runtime/plan/plan.h"
#include "runtime/supervise/binding.h"

enum { PEN_TIMED_PROCESSES_MAX = 256 };
enum { PEN_TIMED_SPIN_NS = 100 * 1000 }; /* how long a rank spins before it sleeps */

/* ---- processes ---- */

/* The processes that run at the same time, each on a core of its own. */
struct pen_busy_cores {
  struct pen_binding binding;
  uint32_t count; /* at most PEN_TIMED_PROCESSES_MAX */
};

/* The cores that this command may use; one process, if the plan is for another device. */
void pen_busy_cores_open(struct pen_busy_cores *cores, const struct pen_plan *plan);

/* Runs `run` in `count` new processes, 0, 1, ..., and waits for them. Several have cores of their
 * own if there are enough; `cores` null: they are not bound. After `seconds` asks them to stop by
 * SIGTERM, which is blocked when they start; INFINITY: never. Fails like a run when one of them
 * does. */
void pen_timed_ranks_run(uint32_t count, const struct pen_busy_cores *cores, double seconds,
                         void (*run)(void *context, uint32_t rank), void *context);

/* ---- what they share ---- */

/* Memory of zeros that all processes share. */
void *pen_timed_memory(size_t bytes);

/* Before the processes start: opens the memory of a plan whose ranks spin for PEN_TIMED_SPIN_NS,
 * on this host. */
void pen_timed_shared_open(struct pen_shared *shared, const struct pen_plan *plan);

/* In a process: opens the transport of its rank, which all do together. The arena is that of
 * shared->memory. */
struct pen_transport *pen_timed_transport_open(const struct pen_plan *plan,
                                               struct pen_shared *shared,
                                               struct pen_endpoint *endpoint, uint32_t rank);

/* ---- times ---- */

/* A kernel that has made bytes, and one that reads them, as far as caches go. */
void pen_timed_write(unsigned char *to, uint64_t bytes, uint64_t round);
void pen_timed_read(const unsigned char *from, uint64_t bytes);

/* A quantile, 0 to 1, of `count` times, at least one. Sorts them. */
double pen_timed_quantile_ns(uint64_t *took_ns, size_t count, double quantile);

#endif
