/* hop_sizes.h: what our side and an MPI library's have in common: sizes, rounds, cores, clock, the
 * reading of what came, and the output. */
#ifndef PEN_HOP_SIZES_H
#define PEN_HOP_SIZES_H

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

static inline uint64_t hop_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads every cache line. */
static inline void hop_read(const unsigned char *from, uint64_t bytes) {
  unsigned sum = 0;
  for (uint64_t at = 0; at < bytes; at += 64) {
    sum += from[at];
  }
  __asm__ volatile("" : : "r"(sum));
}

static inline int hop_compare(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Half of the median of round trips, which are sorted. */
static inline double hop_median_ns(uint64_t *times_ns, uint64_t rounds) {
  qsort(times_ns, rounds, sizeof *times_ns, hop_compare);
  return (double)times_ns[rounds / 2] / 2;
}

/* A line for each size and side. */
static inline void hop_print(const char *side, uint64_t bytes, double median_ns) {
  printf("{\"side\":\"%s\",\"bytes\":%" PRIu64 ",\"hop_ns\":%.1f}\n", side, bytes, median_ns);
}

#endif
