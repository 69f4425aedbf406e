/* message_times.c: sends messages to and fro between two ranks (see message_times.h).
 *
 * In a round each of two ranks writes its message, sends it, and the other one waits for it and
 * reads every cache line. The clock is the same in both processes. Of the rounds of a size the
 * lower quartile counts, since another program may have a core meanwhile. */
#include "runtime/commands/message_times.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/commands/two_ranks.h"

enum { ROUNDS = 200, WARM_ROUNDS = 50 };
#define BYTES_MAX (PEN_MESSAGE_BYTES_MIN << 2 * (PEN_MESSAGE_SIZES - 1))

/* In memory that both ranks share. */
struct round_times {
  uint64_t start_ns[2][ROUNDS + WARM_ROUNDS], took_ns[2 * (ROUNDS + WARM_ROUNDS)];
  double ms[PEN_MESSAGE_SIZES];
};

struct message_run {
  struct pen_two_ranks *two;
  struct round_times *times;
};

/* The side of one rank. Rank 0 sends first. */
static void exchange(struct pen_transport *transport, uint32_t rank, uint64_t bytes,
                     struct round_times *times) {
  unsigned char *arena = transport->arena;
  for (uint32_t round = 0; round < ROUNDS + WARM_ROUNDS; round++) {
    for (uint32_t sender = 0; sender < 2; sender++) {
      if (sender == rank) {
        pen_timed_write(arena + BYTES_MAX, bytes, round);
        times->start_ns[sender][round] = pen_now_ns();
        transport->ops->send(transport, sender);
      } else {
        transport->ops->wait(transport, sender);
        pen_timed_read(arena, bytes);
        times->took_ns[2 * round + sender] = pen_now_ns() - times->start_ns[sender][round];
      }
    }
    transport->ops->end_step(transport);
  }
}

/* Both ranks; rank 0 sets the milliseconds of each size. */
static void exchange_all(void *context, uint32_t rank) {
  const struct message_run *run = context;
  struct pen_endpoint endpoint;
  struct pen_transport *transport =
      pen_timed_transport_open(&run->two->plan, &run->two->shared, &endpoint, rank);
  for (uint32_t size = 0; size < PEN_MESSAGE_SIZES; size++) {
    const uint64_t bytes = PEN_MESSAGE_BYTES_MIN << 2 * size;
    pen_two_ranks_set_bytes(run->two, bytes);
    exchange(transport, rank, bytes, run->times);
    pen_endpoint_barrier(&endpoint);
    if (rank == 0) {
      run->times->ms[size] =
          1e-6 * pen_timed_quantile_ns(run->times->took_ns + 2L * WARM_ROUNDS, 2L * ROUNDS, 0.25);
    }
    pen_endpoint_barrier(&endpoint);
  }
}

void pen_message_times(int transport, const struct pen_busy_cores *cores,
                       double ms[PEN_MESSAGE_SIZES]) {
  static struct pen_two_ranks two;
  struct message_run run = {.two = &two, .times = pen_timed_memory(sizeof(struct round_times))};
  pen_two_ranks_make(&two, transport, BYTES_MAX);
  pen_timed_shared_open(&two.shared, &two.plan);
  pen_timed_ranks_run(2, cores, INFINITY, exchange_all, &run);
  memcpy(ms, run.times->ms, sizeof run.times->ms);
  pen_shared_close(&two.shared);
  munmap(run.times, sizeof *run.times);
}
