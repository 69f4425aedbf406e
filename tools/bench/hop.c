/* hop.c: how long a message of 4 KiB takes from one process to another over the shm
 * transport: two ranks, each on a core of its own, send one message to and fro, and read every
 * cache line of it. Prints one JSON object; a hop is half a round trip. Twice: with ends that spin,
 * as ranks do that have a core each, and with ends that sleep at once.
 *
 *   bench_hop [ROUNDS] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "tools/bench/transport_plan.h"

enum { ROUNDS = 20000, ROUNDS_MAX = 1 << 20, WARM_ROUNDS = 1000, SPIN_NS = 100000 };

/* Binds this process to the n-th of the cores that it may use, if there are so many. */
static void pin(int n) {
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

static int compare(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* One message each way a step: the plan's first, with its credits taken away, and the one that
 * comes back. */
static void use_one_message(struct two_ranks *two) {
  two->channels[0].message_count = 1;
  two->channels[0].credit_count = 0;
  two->messages[0].credit = PEN_NONE;
}

static void read_home(const struct pen_transport *end) {
  unsigned sum = 0;
  for (int at = 0; at < MESSAGE_BYTES; at += 64) {
    sum += end->arena[at];
  }
  __asm__ volatile("" : : "r"(sum));
}

static void echo(struct two_ranks *two, uint64_t rounds) {
  struct pen_transport *end = two->transport[1];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(1);
  for (uint64_t k = 0; k < rounds; k++) {
    end->ops->wait(end, 0);
    read_home(end);
    end->ops->send(end, BACK);
    end->ops->end_step(end);
  }
  _exit(0);
}

struct hop {
  double median_ns, p99_ns;
};

static struct hop measure(uint64_t *times_ns, uint64_t rounds, uint64_t spin_ns) {
  struct two_ranks two;
  two_ranks_open(&two, spin_ns);
  use_one_message(&two);
  pid_t child = fork();
  pen_check(child >= 0, "cannot fork");
  if (child == 0) {
    echo(&two, rounds + WARM_ROUNDS);
  }
  pin(0);
  struct pen_transport *end = two.transport[0];
  for (uint64_t k = 0; k < rounds + WARM_ROUNDS; k++) {
    uint64_t start_ns = pen_now_ns();
    end->ops->send(end, 0);
    end->ops->wait(end, BACK);
    read_home(end);
    end->ops->end_step(end);
    if (k >= WARM_ROUNDS) {
      times_ns[k - WARM_ROUNDS] = pen_now_ns() - start_ns;
    }
  }
  waitpid(child, NULL, 0);
  two_ranks_close(&two);
  qsort(times_ns, rounds, sizeof *times_ns, compare);
  return (struct hop){.median_ns = (double)times_ns[rounds / 2] / 2,
                      .p99_ns = (double)times_ns[rounds * 99 / 100] / 2};
}

int main(int argc, char **argv) {
  uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS;
  pen_check(rounds > 0 && rounds <= ROUNDS_MAX, "ROUNDS: 1 to %d", ROUNDS_MAX);
  uint64_t *times_ns = malloc(rounds * sizeof *times_ns);
  pen_check(times_ns != NULL, "no memory");
  cpu_set_t allowed; /* measure() binds this process */
  pen_check(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "cannot tell the cores");
  struct hop spinning = measure(times_ns, rounds, SPIN_NS);
  pen_check(sched_setaffinity(0, sizeof allowed, &allowed) == 0, "cannot have all cores again");
  struct hop sleeping = measure(times_ns, rounds, 0);
  printf("{\"hop_bytes\":%d,\"rounds\":%" PRIu64
         ",\"hop_median_ns\":%.1f,\"hop_p99_ns\":%.1f,\"hop_asleep_median_ns\":%.1f}\n",
         MESSAGE_BYTES, rounds, spinning.median_ns, spinning.p99_ns, sleeping.median_ns);
  free(times_ns);
  return 0;
}
