/* hop.h: a message to and fro between two processes, for hop.c, which starts them, and hop_mpi.c,
 * where an MPI library did: sizes, rounds, cores, our side of it, and the output. */
#ifndef PEN_HOP_H
#define PEN_HOP_H

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/commands/timed_ranks.h"
#include "runtime/commands/two_ranks.h"

#define HOP_BYTES_MIN ((uint64_t)8)
#define HOP_BYTES_MAX ((uint64_t)16 << 20)
enum { HOP_ROUNDS_MIN = 20, HOP_ROUNDS_MAX = 2000, HOP_WARM_ROUNDS_MIN = 48 };

static inline uint64_t hop_rounds(uint64_t bytes) {
  const uint64_t rounds = ((uint64_t)128 << 20) / bytes;
  return rounds > HOP_ROUNDS_MAX   ? HOP_ROUNDS_MAX
         : rounds < HOP_ROUNDS_MIN ? HOP_ROUNDS_MIN
                                   : rounds;
}

/* Rounds before those that are measured. */
static inline uint64_t hop_warm_rounds(uint64_t bytes) {
  return HOP_WARM_ROUNDS_MIN + hop_rounds(bytes) / 4;
}

/* Binds this process to the n-th of the cores that it may use, if there are so many. */
static inline void hop_pin(int n) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > n) {
    for (int core = 0; core < CPU_SETSIZE; core++) {
      if (CPU_ISSET(core, &allowed) && n-- == 0) {
        CPU_SET(core, &one);
      }
    }
    sched_setaffinity(0, sizeof one, &one);
  }
}

/* Opens the end of a rank and fills what it sends; in both ranks. */
static inline struct pen_transport *hop_open_end(struct pen_two_ranks *two,
                                                 struct pen_endpoint *endpoint, uint32_t rank) {
  struct pen_transport *end = pen_timed_transport_open(&two->plan, &two->shared, endpoint, rank);
  const uint64_t source = two->messages[rank].source_offset;
  memset(end->arena + source, 1, source);
  return end;
}

/* Rank 1 echoes what comes; rank 0 fills times_ns with the round trips after the first `warm` ones.
 * Both read every cache line of what comes. */
static inline void hop_run(struct pen_transport *end, uint64_t warm, uint64_t rounds,
                           uint64_t bytes, uint64_t *times_ns) {
  const uint32_t rank = end->rank;
  for (uint64_t k = 0; k < rounds + warm; k++) {
    const uint64_t start_ns = pen_now_ns();
    if (rank == 0) {
      end->ops->send(end, 0);
    }
    end->ops->wait(end, 1 - rank);
    pen_timed_read(end->arena, bytes);
    if (rank == 1) {
      end->ops->send(end, 1);
    }
    end->ops->end_step(end);
    if (rank == 0 && k >= warm) {
      times_ns[k - warm] = pen_now_ns() - start_ns;
    }
  }
}

/* Half of a quantile of round trips. */
static inline double hop_ns(uint64_t *times_ns, uint64_t rounds, double quantile) {
  return pen_timed_quantile_ns(times_ns, rounds, quantile) / 2;
}

/* A line for each size and side, of the median. */
static inline void hop_print(const char *side, uint64_t bytes, uint64_t *times_ns,
                             uint64_t rounds) {
  printf("{\"side\":\"%s\",\"bytes\":%" PRIu64 ",\"hop_ns\":%.1f}\n", side, bytes,
         hop_ns(times_ns, rounds, 0.5));
}

#endif
