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
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "tools/bench/hop.h"

enum { ROUNDS = 20000, ROUNDS_MAX = 1 << 20, WARM_ROUNDS = 1000, MESSAGE_BYTES = 4096 };

/* ---- 4 KiB by shared memory ---- */

struct one_size {
  struct pen_two_ranks two;
  uint64_t rounds;
  uint64_t *times_ns; /* [rounds] in memory that the processes share */
};

static void run_one_size(void *context, uint32_t rank) {
  struct one_size *size = context;
  struct pen_endpoint endpoint;
  hop_pin((int)rank);
  struct pen_transport *end = hop_open_end(&size->two, &endpoint, rank);
  hop_run(end, WARM_ROUNDS, size->rounds, MESSAGE_BYTES, size->times_ns);
}

static void measure_one_size(uint64_t rounds) {
  static struct one_size size;
  double median_ns[2], p99_ns[2]; /* asleep, spinning */
  pen_check(rounds > 0 && rounds <= ROUNDS_MAX, "ROUNDS: 1 to %d", ROUNDS_MAX);
  size.rounds = rounds;
  size.times_ns = pen_timed_memory(rounds * sizeof *size.times_ns);
  for (int spins = 1; spins >= 0; spins--) {
    pen_two_ranks_make(&size.two, PEN_TRANSPORT_SHM, MESSAGE_BYTES);
    pen_timed_shared_open(&size.two.shared, &size.two.plan);
    size.two.shared.control->spin_ns = spins ? PEN_TIMED_SPIN_NS : 0;
    pen_timed_ranks_run(2, NULL, INFINITY, run_one_size, &size);
    pen_shared_close(&size.two.shared);
    median_ns[spins] = hop_ns(size.times_ns, rounds, 0.5);
    p99_ns[spins] = hop_ns(size.times_ns, rounds, 0.99);
  }
  printf("{\"hop_bytes\":%d,\"rounds\":%" PRIu64
         ",\"hop_median_ns\":%.1f,\"hop_p99_ns\":%.1f,\"hop_asleep_median_ns\":%.1f}\n",
         MESSAGE_BYTES, rounds, median_ns[1], p99_ns[1], median_ns[0]);
}

/* ---- all sizes ---- */

struct all_sizes {
  struct pen_two_ranks two;
  char **places; /* of each rank the namespace and the address; null: those of this process */
};

/* Enters the network namespace with that file. */
static void enter(const char *file) {
  const int namespace = open(file, O_RDONLY | O_CLOEXEC);
  pen_check(namespace >= 0 && setns(namespace, CLONE_NEWNET) == 0, "cannot enter %s", file);
  close(namespace);
}

static void run_all_sizes(void *context, uint32_t rank) {
  static uint64_t times_ns[HOP_ROUNDS_MAX];
  struct all_sizes *all = context;
  struct pen_endpoint endpoint;
  hop_pin((int)rank);
  if (all->places != NULL) {
    enter(all->places[2 * rank]);
    snprintf(all->two.shared.address, sizeof all->two.shared.address, "%s",
             all->places[2 * rank + 1]);
  }
  struct pen_transport *end = hop_open_end(&all->two, &endpoint, rank);
  for (uint64_t bytes = HOP_BYTES_MIN; bytes <= HOP_BYTES_MAX; bytes *= 2) {
    pen_two_ranks_set_bytes(&all->two, bytes);
    hop_run(end, hop_warm_rounds(bytes), hop_rounds(bytes), bytes, times_ns);
    if (rank == 0) {
      hop_print("ours", bytes, times_ns, hop_rounds(bytes));
    }
  }
  pen_endpoint_barrier(&endpoint);
  fflush(stdout);
}

static void measure_sizes(int transport, char **places) {
  static struct all_sizes all;
  all.places = places;
  pen_two_ranks_make(&all.two, transport, HOP_BYTES_MAX);
  pen_timed_shared_open(&all.two.shared, &all.two.plan);
  pen_timed_ranks_run(2, NULL, INFINITY, run_all_sizes, &all);
  pen_shared_close(&all.two.shared);
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
