/* hop.c: how long a message takes from one process to another over a transport: two ranks, each on
 * a core of its own, send one message to and fro, and read every cache line of it. Prints one JSON
 * object; a hop is half a round trip.
 *
 *   hop [ROUNDS]
 *       4 KiB by shared memory, twice: with ends that spin, as ranks do that have a core each, and
 *       with ends that sleep at once.
 *   hop shm
 *   hop ofi NAMESPACE ADDRESS NAMESPACE ADDRESS
 *       All sizes. NAMESPACE: the file of a rank's network namespace, such as /proc/PID/ns/net. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "tools/bench/hop_pair.h"
#include "tools/bench/hop_sizes.h"

enum { ROUNDS = 20000, ROUNDS_MAX = 1 << 20, WARM_ROUNDS = 1000 };

/* ---- 4 KiB by shared memory ---- */

struct hop {
  double median_ns, p99_ns;
};

static struct hop measure(uint64_t *times_ns, uint64_t rounds, uint64_t spin_ns) {
  struct two_ranks two;
  two_ranks_open(&two, spin_ns);
  hop_use_one_message(&two, SOURCE_OFFSET);
  pid_t child = fork();
  pen_check(child >= 0, "cannot fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hop_pin(1);
    hop_echo(two.transport[1], rounds + WARM_ROUNDS, MESSAGE_BYTES);
    _exit(0);
  }
  hop_pin(0);
  hop_call(two.transport[0], WARM_ROUNDS, rounds, MESSAGE_BYTES, times_ns);
  waitpid(child, NULL, 0);
  two_ranks_close(&two);
  const double median_ns = hop_median_ns(times_ns, rounds);
  return (struct hop){.median_ns = median_ns, .p99_ns = (double)times_ns[rounds * 99 / 100] / 2};
}

static void measure_one_size(uint64_t rounds) {
  pen_check(rounds > 0 && rounds <= ROUNDS_MAX, "ROUNDS: 1 to %d", ROUNDS_MAX);
  uint64_t *times_ns = malloc(rounds * sizeof *times_ns);
  pen_check(times_ns != NULL, "no memory");
  cpu_set_t allowed; /* measure() binds this process */
  pen_check(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "cannot tell the cores");
  struct hop spinning = measure(times_ns, rounds, HOP_SPIN_NS);
  pen_check(sched_setaffinity(0, sizeof allowed, &allowed) == 0, "cannot have all cores again");
  struct hop sleeping = measure(times_ns, rounds, 0);
  printf("{\"hop_bytes\":%d,\"rounds\":%" PRIu64
         ",\"hop_median_ns\":%.1f,\"hop_p99_ns\":%.1f,\"hop_asleep_median_ns\":%.1f}\n",
         MESSAGE_BYTES, rounds, spinning.median_ns, spinning.p99_ns, sleeping.median_ns);
  free(times_ns);
}

/* ---- all sizes ---- */

/* Enters the network namespace with that file. */
static void enter(const char *file) {
  const int namespace = open(file, O_RDONLY | O_CLOEXEC);
  pen_check(namespace >= 0 && setns(namespace, CLONE_NEWNET) == 0, "cannot enter %s", file);
  close(namespace);
}

static void measure_sizes(uint8_t transport, char **places) {
  static struct two_ranks two;
  static uint64_t times_ns[HOP_ROUNDS_MAX];
  two_ranks_plan(&two);
  hop_use_one_message(&two, HOP_BYTES_MAX);
  two.plan.transport = transport;
  two_ranks_share(&two, HOP_SPIN_NS);
  const pid_t child = fork();
  pen_check(child >= 0, "cannot fork");
  const uint32_t rank = child == 0 ? 1 : 0;
  prctl(PR_SET_PDEATHSIG, rank == 1 ? SIGKILL : 0);
  hop_pin((int)rank);
  if (places != NULL) {
    enter(places[2 * rank]);
  }
  struct pen_transport *end =
      hop_open_end(&two, rank, places == NULL ? NULL : places[2 * rank + 1]);
  for (uint64_t bytes = HOP_BYTES_MIN; bytes <= HOP_BYTES_MAX; bytes *= 2) {
    const uint64_t rounds = hop_rounds(bytes), warm = hop_warm_rounds(bytes);
    hop_set_bytes(&two, bytes);
    if (rank == 1) {
      hop_echo(end, warm + rounds, bytes);
    } else {
      hop_call(end, warm, rounds, bytes, times_ns);
      hop_print("ours", bytes, hop_median_ns(times_ns, rounds));
    }
  }
  pen_endpoint_barrier(&two.endpoint[rank]);
  if (rank == 1) {
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "shm") == 0) {
    measure_sizes(PEN_TRANSPORT_SHM, NULL);
  } else if (argc == 6 && strcmp(argv[1], "ofi") == 0) {
    measure_sizes(PEN_TRANSPORT_OFI, argv + 2);
  } else {
    measure_one_size(argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS);
  }
  return 0;
}
